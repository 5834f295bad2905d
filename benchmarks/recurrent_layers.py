"""One training step of each kind of recurrent layer on a GPU: Keras' own code and flatout's kernels, side by side.

    python benchmarks/recurrent_layers.py [--batch 32] [--steps 200] [--inputs 128] [--units 64] [--repeats 20]

Both are the gradient of a sum of the layer's outputs with respect to inputs and weights, compiled by jax, all of them
side by side before the first is measured; medians.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from keras import layers

from flatout.engines.jax.recurrent.recurrent_layers import recurrent_kernels

# Each with whether its last steps are masked.
KINDS: dict[str, tuple[Callable[..., Any], bool]] = {
    "LSTM": (layers.LSTM, False),
    "LSTM, masked": (layers.LSTM, True),
    "LSTM, both ways": (lambda *args, **more: layers.Bidirectional(layers.LSTM(*args, **more), **_policy(more)), False),
    "LSTM, both ways, masked": (
        lambda *args, **more: layers.Bidirectional(layers.LSTM(*args, **more), **_policy(more)),
        True,
    ),
    "GRU": (layers.GRU, False),
    "GRU, masked": (layers.GRU, True),
    "GRU, both ways": (lambda *args, **more: layers.Bidirectional(layers.GRU(*args, **more), **_policy(more)), False),
    "SimpleRNN": (layers.SimpleRNN, False),
    "SimpleRNN, masked": (layers.SimpleRNN, True),
}


def _policy(options: dict[str, Any]) -> dict[str, Any]:
    return {"dtype": options["dtype"]}


def gradient(layer: Any, mask: Any) -> Callable[..., Any]:
    def total(weights: Any, x: Any) -> Any:
        outputs, _ = layer.stateless_call(weights, others, x, mask=mask, training=True)
        return outputs.astype("float32").sum()

    others = [variable.value for variable in layer.non_trainable_variables]
    return jax.jit(jax.value_and_grad(total, argnums=(0, 1)))


@dataclass(frozen=True)
class Side:
    """A layer's gradient by Keras' own code or by kernels, being compiled, and why a layer was left to Keras."""

    program: Future[Any]
    left: dict[str, str]


def begun(compilers: Executor, layer: Any, arguments: tuple[Any, ...], mask: Any, kernels: Any) -> Side | None:
    """None where Keras 3.15 cannot trace it: a GRU in half precision without a mask."""
    with contextlib.suppress(TypeError), kernels as decided:
        lowered = gradient(layer, mask).lower(*arguments)
        return Side(compilers.submit(lowered.compile), decided)
    return None


def microseconds(function: Callable[..., Any], arguments: tuple[Any, ...], repeats: int) -> float:
    jax.block_until_ready(function(*arguments))
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready([function(*arguments) for _ in range(5)])
        taken.append((time.perf_counter() - start) / 5 * 1e6)
    return statistics.median(taken)


def difference(ours: Any, theirs: Any) -> float:
    """The largest, of gradients that are scaled by their largest entry."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    found = [(np.asarray(one, "float32"), np.asarray(other, "float32")) for one, other in pairs]
    return max(float(np.abs(one - other).max() / max(1e-30, np.abs(other).max())) for one, other in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("batch", 32), ("steps", 200), ("inputs", 128), ("units", 64), ("repeats", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "mixed_bfloat16"])
    chosen = parser.parse_args()
    if jax.default_backend() != "gpu":
        print("There is nothing to measure: the kernels run on a GPU, and jax has none here.")
        return
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, keras {keras.__version__}; {vars(chosen)}")
    print("| layer | dtype | Keras, us | kernels, us | ratio | difference |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    random = np.random.default_rng(0)
    x = jax.device_put(random.normal(size=(chosen.batch, chosen.steps, chosen.inputs)).astype("float32"))
    lengths = random.integers(chosen.steps // 2, chosen.steps + 1, chosen.batch)
    right_padded = np.arange(chosen.steps) < lengths[:, None]
    cases = []
    with ThreadPoolExecutor() as compilers:
        for dtype in chosen.dtypes:
            for name, (make, is_masked) in KINDS.items():
                layer = make(chosen.units, return_sequences=True, dtype=dtype)
                layer.build(x.shape)
                arguments = ([variable.value for variable in layer.trainable_variables], x)
                mask = right_padded if is_masked else None
                sides = [
                    begun(compilers, layer, arguments, mask, kernels)
                    for kernels in (contextlib.nullcontext({}), recurrent_kernels())
                ]
                cases.append((f"{name} | {dtype}", arguments, sides))
    for title, arguments, sides in cases:
        programs = [None if side is None else side.program.result() for side in sides]
        theirs, ours = (
            math.nan if program is None else microseconds(program, arguments, chosen.repeats) for program in programs
        )
        results = [program(*arguments) for program in programs if program is not None]
        apart = difference(*reversed(results)) if len(results) == 2 else math.nan
        why = ", ".join(sorted({why for side in sides if side is not None for why in side.left.values() if why}))
        line = f"| {title} | {theirs:,.0f} | {ours:,.0f} | {theirs / ours:.2f} | {apart:.1e} |"
        print(line + (f" left to Keras: {why}" if why else ""), flush=True)


if __name__ == "__main__":
    main()
