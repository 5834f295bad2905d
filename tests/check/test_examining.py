"""The codes that stand beside a loss are reported; where there is nothing to say, nothing is said."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from loss_marks import losses_in

from flatout.check.examining.examine import check_file, check_paths
from flatout.check.rules.rule import BACKENDS, Backend
from flatout.pysource.source_file import Project

pytestmark = pytest.mark.backend("jax")  # The source is read, not run.
_CLEAN = Path(__file__).parent / "cases" / "clean.py"
_CHECKED, _REWRITTEN = Path(__file__).parent / "losses", Path(__file__).parents[1] / "vectorize" / "losses"
# Values that are read on the way, and selections, go with a habit.
_ON_THE_WAY = {"FO101", "FO102", "FO108", "FO201", "FO202", "FO205", "FO401"}


@pytest.mark.slow
@pytest.mark.parametrize("path", [*_CHECKED.glob("[!c]*.py"), *_REWRITTEN.glob("*.py")], ids=lambda path: path.stem)
def test_the_codes_beside_a_loss_are_reported(path: Path) -> None:
    found = check_paths([path], "torch")
    for loss in losses_in(path.parent):
        if loss.file != path.stem or loss.expected == "refused":
            continue
        mine = [one for one in found if one.function.split(".")[0] == loss.name]
        for wanted in loss.codes:
            told = {one.code for one in mine}
            assert told & set(wanted.split("|")), f"{loss.name}: {wanted} is missing among {sorted(told)}"
        loud = {one.code for one in mine if one.severity != "info"}
        assert {code for code in loud if not any(code in wanted for wanted in loss.codes)} <= _ON_THE_WAY, loss.name


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(_CHECKED.glob("clean_*.py")), ids=lambda path: path.stem)
@pytest.mark.parametrize("backend", BACKENDS)
def test_clean_losses_raise_no_alarm(path: Path, backend: Backend) -> None:
    assert [one for one in check_paths([path], backend) if one.severity != "info"] == []


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
@pytest.mark.backend("torch")
def test_flatouts_own_source_is_silent() -> None:
    import flatout

    assert check_paths([Path(flatout.__file__).parent], "jax") == []
