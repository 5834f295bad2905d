"""NVRTC takes the fused kernel in all its forms for Hopper and Blackwell; this needs no GPU."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from flatout.native.fused.fused_plan import plans
from flatout.native.fused.fused_program import TRAIN, fused_program
from flatout.native.program.kernel_source import cuda_source
from flatout.native.staged.staged_program import staged_program

from .cases import Block
from .fused_cases import case_of, hidden

pytestmark = [pytest.mark.backend("jax"), pytest.mark.slow]

_SEED = {"shape": (784,), "blocks": (Block(128, "relu", "inside", 0.0, 0.0),), "batch_size": 32}
# What changes in the model, the type of x, the precision.
_VARIANTS: dict[str, tuple[dict[str, Any], str, Any]] = {
    "seed": ({}, "float32", "exact"),
    "fast": ({}, "float32", "fast"),
    "16 units, gelu, pixels": ({"blocks": (Block(256, "gelu", "inside", 0.0, 0.0),)}, "uint8", "exact"),
    "sgd, logits": ({"batch_size": 16, "optimizer": "sgd", "loss": "sparse_logits", "outputs": 16}, "float32", "exact"),
    "two hidden layers, fast": ({"blocks": hidden(128, 128)}, "float32", "fast"),
    "four hidden layers": ({"blocks": hidden(128, 128, 128, 128)}, "float32", "exact"),
    "256 and 128 units": ({"blocks": hidden(256, 128)}, "float32", "exact"),
    "small, momentum": ({"shape": (32,), "optimizer": "momentum", "outputs": 3}, "float32", "exact"),
}


# What a Blackwell could refuse shows in few of them.
_BLACKWELL = ("fast", "four hidden layers")


@pytest.mark.parametrize(
    ("name", "arch"), [*((name, "sm_90a") for name in _VARIANTS), *((name, "sm_100a") for name in _BLACKWELL)]
)
def test_nvrtc_compiles(name: str, arch: str) -> None:
    cuda_core = pytest.importorskip(
        "cuda.core", reason="cuda-core and nvidia-cuda-nvrtc are not installed (flatout[gpu])"
    )
    changes, x_type, precision = _VARIANTS[name]
    case = case_of(**{**_SEED, **changes})
    model, (x, y) = case.build(), case.data()
    model._symbolic_build(data_batch=(x[:4], y[:4]))
    program = staged_program(model, "train", case.batch_size, x_type, "int32", False)
    plan = plans(program.network, case.batch_size, x_type, False, precision)[0]
    options = cuda_core.ProgramOptions(std="c++17", arch=arch, ptxas_options=["-v"])
    try:
        made = cuda_core.Program(cuda_source(fused_program(program, plan)), "c++", options)
    except Exception as error:
        if "nvrtc" in str(error).lower() and "found" in str(error).lower():
            pytest.skip(f"nvidia-cuda-nvrtc is not installed: {error}")
        raise
    log = io.StringIO()
    cubin = bytes(made.compile("cubin", logs=log).code)
    assert TRAIN.encode() in cubin
    spilled = re.search(rf"'{TRAIN}'.*?(\d+) bytes spill stores", log.getvalue(), re.DOTALL)
    if arch == "sm_90a" and all(layer.units == 8 for layer in plan.layers) and spilled is not None:
        assert spilled[1] == "0", log.getvalue()
