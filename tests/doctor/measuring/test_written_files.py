"""Files that are opened to be written are noted, in the thread that asks, and while it asks."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from flatout.doctor.measuring import written_files as subject
from flatout.doctor.measuring.written_files import written_files

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is not among the temporary ones."""
    monkeypatch.setattr(subject.tempfile, "gettempdir", lambda: f"{os.sep}nowhere")
    return tmp_path


@pytest.mark.parametrize("mode", ["w", "a", "r+", "xb"])
def test_each_way_to_write_is_noted(home: Path, mode: str) -> None:
    file = home / "log.csv"
    if mode == "r+":
        file.touch()
    with written_files() as found, file.open(mode):
        pass
    assert found == [str(file)]


def test_reading_other_threads_and_afterwards_are_not(home: Path) -> None:
    (home / "read").touch()
    with written_files() as found:
        (home / "read").read_text()
        thread = threading.Thread(target=(home / "other").touch)
        thread.start()
        thread.join()
    (home / "later").touch()
    assert found == []


def test_a_file_descriptor_has_no_name(home: Path) -> None:
    with written_files() as found, open(sys.stderr.fileno(), "w", closefd=False):
        pass
    assert found == []
