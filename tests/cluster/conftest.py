"""Worker processes start with one device each, and as soon as the scripts that tests start."""

from __future__ import annotations

import pytest
from scripts import QUICK_START


@pytest.fixture
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each process: those of this one are four, which would be no processes."""
    monkeypatch.setenv("XLA_FLAGS", "")
    # They take this process' path.
    monkeypatch.syspath_prepend(str(QUICK_START))
