"""What XLA launches in a step of the models of `flatout bench` on jax: kernels, and the bytes that they write.

    python benchmarks/xla_kernels.py tabular convnet
    python benchmarks/xla_kernels.py tabular --target h200.txtpb --text texts

With jax for CUDA (`pip install 'jax[cuda12]'`), on a machine with a GPU; or on one without, for the GPU that `--target`
describes, as the files in xla/backends/gpu/target_config/specs of openxla/xla do. There products are XLA's first
choice, since none can be tried: compare the two columns, not one of them with a profile. "plain" is Keras' own step in
the same loop, "flatout" the one that flatout compiles.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["KERAS_BACKEND"] = "jax"
# No GPU is needed to compile for one.
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
if any(word.startswith("--target") for word in sys.argv):
    # Triton's products are chosen among by trying them.
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_triton_gemm=false"

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.console import Console
from rich.table import Table

from flatout.bench.comparison import SEED
from flatout.bench.workloads import WORKLOADS
from flatout.engines.jax import executables, joined_step, triton_gpu
from flatout.engines.jax.engine import JaxEngine

_STEPS, _LONG = 200, 10**9
_BYTES = {"f64": 8, "s64": 8, "u64": 8, "f16": 2, "bf16": 2, "u8": 1, "s8": 1, "pred": 1}
# What stands in a program and is no launch.
_NO_LAUNCH = ("parameter", "get-tuple-element", "constant", "tuple", "bitcast", "while")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKLOADS)}; all by default")
    parser.add_argument("--target", type=Path, help="the description of a GPU that is not there")
    parser.add_argument("--text", type=Path, help="a folder for XLA's texts")
    given = parser.parse_args()
    if given.target is None:
        device, about = jax.devices()[0], jax.devices()[0].device_kind
    else:
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=given.target.read_text(), topology="1x1x1"
        )
        device, about = topology.devices[0], given.target.stem
    table = Table("model", "plain: kernels", "MB written", "flatout: kernels", "MB written")
    table.title = f"a step on {about}, jax {jax.__version__}, Keras {keras.__version__}"
    for column in table.columns[1:]:
        column.justify = "right"
    for name in given.names or WORKLOADS:
        cells = []
        for way in ("plain", "flatout"):
            text = _compiled_text(name, device, way == "flatout")
            if given.text is not None:
                given.text.mkdir(exist_ok=True)
                (given.text / f"{name}-{way}.txt").write_text(text)
            kernels, written = launches(text)
            cells += [str(kernels), f"{written / 1e6:,.1f}"]
        table.add_row(name, *cells)
    Console().print(table)


def _compiled_text(name: str, device: Any, is_ours: bool) -> str:
    """The text of the loop over a model's steps, compiled for a GPU."""
    one = NamedSharding(Mesh(np.array([device]), ("one",)), PartitionSpec())
    workload = WORKLOADS[name]
    keras.utils.set_random_seed(SEED)
    x, y = workload.data(_STEPS)
    model = workload.build()
    model.train_on_batch(*keras.tree.map_structure(lambda rows: rows[: workload.batch_size], (x, y)))
    compiled: list[str] = []

    def compile_for_gpu(function: Callable[..., Any], arguments: Any, donate: tuple[int, ...] = ()) -> Any:
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype, sharding=one), arguments)
        lowered = jax.jit(function, donate_argnums=donate).trace(*shapes).lower(lowering_platforms=("cuda",))
        compiled.append(lowered.compile().as_text())
        return lambda: None

    with (
        mock.patch.object(jax, "default_backend", return_value="gpu"),
        mock.patch.object(joined_step, "spares_launches", return_value=is_ours),
        mock.patch.object(triton_gpu, "capability", return_value="9.0"),
        mock.patch.object(triton_gpu, "cores", return_value=132),
        mock.patch.object(executables, "compile_shared", compile_for_gpu),
    ):
        data = jax.tree.map(jnp.asarray, (x, y, None))
        program = JaxEngine().prepare(model, "train", data, len(y), workload.batch_size)
        # So long a fit has all kernels of ours that there are.
        program.expect(_LONG)
        program.compile_ahead(False)
    return compiled[0]


def launches(text: str) -> tuple[int, int]:
    """Of the longest loop in a program's text: its kernels, and the bytes that they write."""
    bodies = set(re.findall(r"body=(%[\w.\-]+)", text))
    most = (0, 0)
    for part in re.split(r"\n\n+", text):
        if not (head := re.match(r"(%\S+) \(", part)) or head[1] not in bodies:
            continue
        made = re.findall(r"^\s*(?:ROOT )?%\S+ = (\(.*?\)|\S+) ([a-z\-]+)\(", part, re.MULTILINE)
        kernels = [shapes for shapes, operation in made if operation not in _NO_LAUNCH]
        most = max(most, (len(kernels), sum(map(_bytes_of, kernels))))
    return most


def _bytes_of(shapes: str) -> int:
    # Scratch memory of libraries, of which nobody knows how much they use, is s8 or u8.
    arrays = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", re.sub(r", [su]8\[\d*\]\S*\)", ")", shapes))
    return sum(
        _BYTES.get(kind, 4) * math.prod(int(size) for size in sizes.split(",") if size) for kind, sizes in arrays
    )


if __name__ == "__main__":
    main()
