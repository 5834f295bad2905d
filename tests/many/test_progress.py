"""What a terminal shows of many models: how many are done, what runs, and the best first."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from flatout.many.candidate import Candidate
from flatout.many.progress import _Display
from flatout.many.splits import Split

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")


class Running:
    class history:
        history = {"val_loss": [0.3]}  # noqa: RUF012


def test_the_best_comes_first_and_what_runs_counts_by_its_epochs() -> None:
    candidates = [Candidate(n, {"rate": n}, 0, Split(), generators=None) for n in range(4)]  # type: ignore[arg-type]
    candidates[0].history = {"val_loss": [0.9, 0.5]}
    candidates[1].history = {"val_loss": [float("nan")]}
    candidates[2].model = Running()
    console = Console(file=io.StringIO(), width=100)
    console.print(_Display(candidates, epochs=2))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2 of 4 models done, 1 run" in text
    assert "left" in text
    assert text.index("rate=2") < text.index("rate=0")
    assert "rate=1" not in text
    assert "rate=3" not in text
