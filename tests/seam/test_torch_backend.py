"""Where the functions of Keras' torch backend are."""

from __future__ import annotations

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
