"""The kernels on the CPU: the very source that a GPU runs, emulated thread by thread."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.native.launch.launch_cpu import compiler
from flatout.native.launch.launcher import make_launcher


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The CPU launcher, also where flatout chooses one."""
    if compiler() is None:
        pytest.skip("no C++ compiler (g++ or clang++) to emulate the kernels with")
    monkeypatch.setenv("FLATOUT_NATIVE", "cpu")
    return make_launcher("cpu")
