"""Modules are imported by their use, not by their name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flatout.base import when_used

pytestmark = pytest.mark.backend("jax")


def test_a_module_is_imported_when_it_is_first_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flatout_seldom_used.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = when_used._WhenUsed("flatout_seldom_used")
    assert module.__name__ not in sys.modules
    assert module.value == 3
    monkeypatch.setattr("flatout_seldom_used.value", 4)
    assert module.value == 4
    with pytest.raises(AttributeError, match="flatout_seldom_used"):
        _ = module.nothing
    del sys.modules["flatout_seldom_used"]


def test_what_is_not_installed_is_said_at_its_use() -> None:
    with pytest.raises(ModuleNotFoundError, match="flatout_not_there"):
        _ = when_used._WhenUsed("flatout_not_there").value
