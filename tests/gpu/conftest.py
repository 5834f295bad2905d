"""What tests of the native kernels on a GPU share."""

from __future__ import annotations

from typing import Any

import keras
import pytest

from flatout.native.launch.launcher import make_launcher


@pytest.fixture
def full_precision() -> None:
    """Products of Keras without TF32, whose rounding would hide a difference."""
    if keras.config.backend() == "jax":
        import jax

        jax.config.update("jax_default_matmul_precision", "float32")
    elif keras.config.backend() == "torch":
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    else:
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)


@pytest.fixture(scope="session")
def launcher() -> Any:
    """Of a GPU whose blocks can form clusters."""
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    made = make_launcher("cuda.core")
    obstacle = made.why_no_clusters()
    if obstacle is not None:
        pytest.skip(obstacle)
    return made
