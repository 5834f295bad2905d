"""Scripts that tests start in a process of their own, with the flatout of this tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import flatout

SOURCES = Path(flatout.__file__).parents[1]
QUICK_START = Path(__file__).with_name("quick_start")
PATH = os.pathsep.join([str(SOURCES), str(QUICK_START)])


def run(folder: Path, *arguments: str, timeout: float = 170, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, in a folder, to its end."""
    environment = {**os.environ, "PYTHONPATH": PATH, **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)


def start(code: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Python code as a script, the head of a process group; Ctrl-C reaches it by `os.killpg` alone."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": PATH, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
