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


# One process for all: importing Keras and torch takes longer than most of them.
_ONE_AFTER_THE_OTHER = """
import os, runpy, sys
scripts, sys.argv[1:] = sys.argv[1:], ["--quick"]
for script in scripts:
    sys.path.insert(0, os.path.dirname(script))
    print("==", script)
    runpy.run_path(script, run_name="__main__")
    del sys.path[0]
"""


# The one backend that can run all of them.
@pytest.mark.slow
@pytest.mark.backend("torch")
def test_planted_scripts_run_and_print_their_times(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", _ONE_AFTER_THE_OTHER, *map(str, _SCRIPTS))
    assert done.returncode == 0, done.stderr
    _, *parts = re.split(r"^== ", done.stdout, flags=re.MULTILINE)
    printed = dict(part.split("\n", 1) for part in parts)
    assert list(printed) == [str(script) for script in _SCRIPTS]
    for script, lines in printed.items():
        assert re.search(_PRINTED, lines), (script, lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", sorted(_PLANTED.glob("*.py")), ids=_name)
def test_a_fault_is_marked_once_and_its_mended_version_has_none(script: Path) -> None:
    is_faulty = script.name not in ("timing.py", "honest_convnet.py")
    assert script.read_text().count("# planted") == is_faulty
    mended = script.parent / "fixed" / script.name
    assert mended.is_file() == is_faulty
    assert not is_faulty or "# planted" not in mended.read_text()
