"""Tests lie where their subject lies: `tests/ROOM/.../test_x.py` is about `x.py`, or the folder `x`, of `src`.

`test_x_about.py` is about an aspect of it. What stands outside the rooms is about whole journeys of a user.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import flatout

pytestmark = pytest.mark.backend("jax")  # Files are looked at, nothing is run.
_SOURCE, _TESTS = Path(flatout.__file__).parent, Path(__file__).parent
_ROOMS = sorted(path.name for path in _SOURCE.iterdir() if (path / "__init__.py").is_file())


def _has_subject(test: Path) -> bool:
    folder = _SOURCE / test.relative_to(_TESTS).parent
    words = test.stem.removeprefix("test_").split("_")
    subjects = ("_".join(words[:count]) for count in range(1, len(words) + 1))
    return any((folder / f"{subject}.py").is_file() or (folder / subject).is_dir() for subject in subjects)


@pytest.mark.parametrize("room", _ROOMS)
def test_every_test_of_a_room_has_its_subject(room: str) -> None:
    assert [
        str(test.relative_to(_TESTS)) for test in (_TESTS / room).rglob("test_*.py") if not _has_subject(test)
    ] == []
