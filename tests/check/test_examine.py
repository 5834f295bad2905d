"""Where there is nothing to say, nothing is said."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from flatout.check.examine import check_file, check_paths
from flatout.check.rules.rule import BACKENDS, Backend
from flatout.pysource.source_file import Project

pytestmark = pytest.mark.backend("jax")  # The source is read, not run.
_CLEAN = Path(__file__).parent / "cases" / "clean.py"


@pytest.mark.parametrize("backend", BACKENDS)
def test_clean_losses_are_silent(backend: Backend) -> None:
    assert check_paths([_CLEAN], backend) == []


def test_more_than_thirty_of_them_were_examined() -> None:
    roots = check_file(Project(), _CLEAN, "jax", {})
    assert len([root for root in roots if root.kind in ("loss", "metric")]) >= 30
    assert {root.kind for root in roots} == {"loss", "metric", "step", "callback"}
    assert not {"plot_predictions", "host_rmse", "get_loss"} & {root.name for root in roots}


@pytest.mark.parametrize("folder", ["losses", "metrics"])
def test_keras_own_losses_and_metrics_are_silent(folder: str) -> None:
    spec = importlib.util.find_spec("keras")
    assert spec is not None
    assert spec.origin is not None
    files = [path for path in (Path(spec.origin).parent / "src" / folder).glob("*.py") if "_test" not in path.name]
    findings: dict[tuple[str, str, int, int], object] = {}
    project = Project()
    roots = [root for path in files for root in check_file(project, path, "torch", findings)]  # type: ignore[arg-type]
    assert len(roots) > 20
    assert list(findings.values()) == []


@pytest.mark.slow
def test_flatouts_own_source_is_silent() -> None:
    import flatout

    assert check_paths([Path(flatout.__file__).parent], "jax") == []
