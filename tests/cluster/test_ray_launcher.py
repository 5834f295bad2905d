"""A fit on Ray, on a cluster of this machine that the test starts, comes out as one by this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scripts import PATH, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_SCRIPT = """
import sys
import numpy as np, keras, flatout
import group_cases as cases

for workers, launcher in ((1, None), (int(sys.argv[1]), "ray")):
    for data in ({"x": cases.X, "y": cases.Y, "batch_size": cases.BATCH}, {"x": cases.Batches()})[: int(sys.argv[2])]:
        model = cases.network()
        with flatout.options(launcher=launcher, force=True):
            history = flatout.fit(model, epochs=2, verbose=0, workers=workers, **data)
        sums = [float(abs(values).sum()) for values in model.get_weights()]
        print("result", *history.history["loss"], *history.history["mae"], *sums)
assert [why.code for why in flatout.explain()[-1].reasons][-1] == "group"
"""


def _same(folder: Path, workers: int, kinds: int) -> None:
    (folder / "train.py").write_text(_SCRIPT)
    tests = str(Path(__file__).parents[1])
    done = run(folder, "train.py", str(workers), str(kinds), timeout=380, PYTHONPATH=f"{PATH}:{tests}", XLA_FLAGS="")
    assert done.returncode == 0, done.stderr
    # Ray may have something to say besides.
    found = [line.split() for line in done.stdout.splitlines() if line.startswith("result")]
    lines = [np.array(numbers, float) for _, *numbers in found]
    assert len(lines) == 2 * kinds
    for ours, expected in zip(lines[kinds:], lines[:kinds], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-5)


@pytest.mark.backend("jax")
def test_arrays_by_two_workers(tmp_path: Path) -> None:
    _same(tmp_path, workers=2, kinds=1)


@pytest.mark.cluster
def test_arrays_and_a_pydataset_by_two_workers(tmp_path: Path) -> None:
    _same(tmp_path, workers=2, kinds=2)


@pytest.mark.cluster
def test_one_worker(tmp_path: Path) -> None:
    _same(tmp_path, workers=1, kinds=1)
