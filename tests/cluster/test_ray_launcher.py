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

np.save("x.npy", cases.X)
np.save("y.npy", cases.Y)
arrays, files = ({"x": x, "y": y, "batch_size": cases.BATCH} for x, y in ((cases.X, cases.Y), ("x.npy", "y.npy")))
workers, *kinds = sys.argv[1:]
if int(workers) > 2:
    import ray
    ray.init(num_cpus=int(workers), include_dashboard=False, log_to_driver=False)
for workers, launcher in ((1, None), (int(workers), "ray")):
    for kind in kinds:
        data = {"arrays": arrays, "files": files, "pydataset": {"x": cases.Batches()}}[kind]
        model = cases.network()
        with flatout.options(launcher=launcher, force=True):
            history = flatout.fit(model, epochs=2, verbose=0, workers=workers, **data)
        sums = [float(abs(values).sum()) for values in model.get_weights()]
        print("result", *history.history["loss"], *history.history["mae"], *sums)
assert [why.code for why in flatout.explain()[-1].reasons][-1] == "group"
import ray
from ray._common.usage import usage_lib
assert not usage_lib.usage_stats_enabled()
assert not ray._private.worker.get_dashboard_url()
"""


def _same(folder: Path, workers: int, *kinds: str) -> None:
    (folder / "train.py").write_text(_SCRIPT)
    tests = str(Path(__file__).parents[1])
    done = run(folder, "train.py", str(workers), *kinds, timeout=380, PYTHONPATH=f"{PATH}:{tests}", XLA_FLAGS="")
    assert done.returncode == 0, done.stderr
    # Ray may have something to say besides.
    found = [line.split() for line in done.stdout.splitlines() if line.startswith("result")]
    lines = [np.array(numbers, float) for _, *numbers in found]
    assert len(lines) == 2 * len(kinds)
    for ours, expected in zip(lines[len(kinds) :], lines[: len(kinds)], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-5)


@pytest.mark.backend("jax")
def test_arrays_by_two_workers(tmp_path: Path) -> None:
    _same(tmp_path, 2, "arrays")


@pytest.mark.cluster
@pytest.mark.parametrize("workers", [2, 4])
def test_all_kinds_of_data(tmp_path: Path, workers: int) -> None:
    _same(tmp_path, workers, "arrays", "pydataset", "files")


@pytest.mark.cluster
def test_one_worker(tmp_path: Path) -> None:
    _same(tmp_path, 1, "arrays")
