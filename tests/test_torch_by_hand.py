"""`benchmarks/torch_by_hand.py`: a model by hand is Keras' one, and a run has its table."""

from __future__ import annotations

from pathlib import Path

import pytest
import scripts

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "torch_by_hand.py"


@pytest.mark.slow
@pytest.mark.backend("torch")
def test_a_model_by_hand_agrees_with_keras_and_is_timed(tmp_path: Path) -> None:
    done = scripts.run(tmp_path, str(SCRIPT), "tabular_joined", "--steps", "2", "--repeats", "1", "--no-compile")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("|")][2:]
    assert [row[1].strip() for row in rows] == ["tabular, one embedding of 26 columns"]
    assert all(cell.strip() != "-" for row in rows for cell in row[2:4] + row[5:6])
