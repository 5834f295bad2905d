"""Where the functions of Keras' torch backend are."""

from __future__ import annotations

import keras
import pytest

pytestmark = pytest.mark.backend("torch")


def test_the_modules_that_define_and_pass_on_a_function() -> None:
    from flatout.seam import torch_backend

    modules = torch_backend.modules_with("cond")
    assert modules[0] is torch_backend.core
    assert len(modules) > 1
    assert {module.cond for module in modules} == {torch_backend.core.cond}
    assert torch_backend.random.torch_seed_generator
    assert torch_backend.get_device() == "cpu" or "cuda" in torch_backend.get_device()


def test_the_global_seed_generator() -> None:
    from flatout.seam.torch_backend import global_seed_generator, set_global_seed_generator

    keras.utils.set_random_seed(1)
    assert global_seed_generator() is None
    keras.random.uniform((1,))
    generator = global_seed_generator()
    assert isinstance(generator, keras.random.SeedGenerator)
    set_global_seed_generator(None)
    assert global_seed_generator() is None
    set_global_seed_generator(generator)
