"""NVRTC takes the generated source for every architecture that we name; this needs no GPU."""

from __future__ import annotations

import pytest

from flatout.native.program.kernel_source import cuda_source
from flatout.native.staged.staged_program import staged_program

from .cases import PLAIN, Block, Case

pytestmark = [pytest.mark.backend("jax"), pytest.mark.slow]

_VARIANTS = {
    "seed": PLAIN,
    "every layer": Case(
        **{
            **vars(PLAIN),
            "first": "normalization",
            "blocks": tuple(Block(8, curve, "norm", 1e-3, 1e-3) for curve in ("relu", "gelu", "silu", "softmax")),
            "loss": "binary",
            "outputs": 3,
            "optimizer": "amsgrad",
            "clip": ("clipnorm", 1.0),
            "weighted": True,
        }
    ),
    "logits": Case(**{**vars(PLAIN), "loss": "categorical_logits", "optimizer": "rmsprop_centered", "smoothing": 0.1}),
    "in parts": Case(**{**vars(PLAIN), "batch_size": 2048, "blocks": (), "loss": "huber", "optimizer": "nesterov"}),
}


@pytest.mark.parametrize(
    ("name", "arch"), [*((name, "sm_90a") for name in _VARIANTS), ("every layer", "sm_80"), ("every layer", "sm_100a")]
)
def test_nvrtc_compiles(name: str, arch: str) -> None:
    cuda_core = pytest.importorskip(
        "cuda.core", reason="cuda-core and nvidia-cuda-nvrtc are not installed (flatout[gpu])"
    )
    case = _VARIANTS[name]
    model, (x, y, *_) = case.build(), case.data()
    model._symbolic_build(data_batch=(x[:4], y[:4]))
    program = staged_program(model, "train", case.batch_size, x.dtype.name, y.dtype.name, case.weighted)
    try:
        made = cuda_core.Program(cuda_source(program), "c++", cuda_core.ProgramOptions(std="c++17", arch=arch))
    except Exception as error:
        if "nvrtc" in str(error).lower() and "found" in str(error).lower():
            pytest.skip(f"nvidia-cuda-nvrtc is not installed: {error}")
        raise
    cubin = bytes(made.compile("cubin").code)
    assert all(name.encode() in cubin for name in program.kernels)
