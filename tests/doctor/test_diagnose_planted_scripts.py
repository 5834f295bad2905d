"""The scripts with known faults, which the doctor is judged by, run as they are, and so do their mended versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import run

_PLANTED = Path(__file__).parents[2] / "examples" / "doctor"
_SCRIPTS = [path for path in sorted(_PLANTED.rglob("*.py")) if path.name != "timing.py"]
_PRINTED = r"loss -?[\d.]+\nseconds [\d.]+\nsteady [\d.]+\nsteps \d+\n\Z"


def _name(script: Path) -> str:
    return str(script.relative_to(_PLANTED))


# The one backend that can run all of them.
@pytest.mark.slow
@pytest.mark.backend("torch")
@pytest.mark.parametrize("script", _SCRIPTS, ids=_name)
def test_a_planted_script_runs_and_prints_its_times(script: Path, tmp_path: Path) -> None:
    done = run(tmp_path, str(script), "--quick")
    assert done.returncode == 0, done.stderr
    assert re.search(_PRINTED, done.stdout), done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", sorted(_PLANTED.glob("*.py")), ids=_name)
def test_a_fault_is_marked_once_and_its_mended_version_has_none(script: Path) -> None:
    is_faulty = script.name not in ("timing.py", "honest_convnet.py")
    assert script.read_text().count("# planted") == is_faulty
    mended = script.parent / "fixed" / script.name
    assert mended.is_file() == is_faulty
    assert not is_faulty or "# planted" not in mended.read_text()
