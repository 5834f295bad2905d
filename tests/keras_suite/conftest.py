"""Programs in folders of their own, as the tests of the runner have them; they find the plugin, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from runner.conftest import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    made.environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[1])
    return made
