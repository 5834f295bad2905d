"""Every proof is made anew, except where a test asks for those that are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.vectorize.verify import kept_verdicts


@pytest.fixture(autouse=True)
def _proofs_are_made_anew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "kept_verdicts_are_used" not in request.fixturenames:
        monkeypatch.setattr(kept_verdicts, "load", lambda key: None)


@pytest.fixture
def kept_verdicts_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this test, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
