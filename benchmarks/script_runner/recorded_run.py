"""One run of a script in a process of its own: what it printed, how it ended, and the `History` of each fit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_RECORDER = Path(__file__).with_name("recorder")
_SOURCES = Path(__file__).parents[2] / "src"
# `os.environ["KERAS_BACKEND"] = "jax"`, `os.environ.setdefault("KERAS_BACKEND", "jax")`, `set_backend("jax")`
_NAMES_A_BACKEND = re.compile(r"""(?:KERAS_BACKEND["'](?:\]\s*=|\s*,)|\bset_backend\()\s*["'](\w+)["']""")


@dataclass(frozen=True)
class RecordedRun:
    """How a script ended (None: it ran past its limit) and what it left."""

    exit_code: int | None
    printed: str
    seconds: float
    error: str = ""
    fits: list[dict[str, Any]] = field(default_factory=list)
    fit_seconds: float = 0.0

    @property
    def closing_line(self) -> str:
        """What flatout said at the end."""
        lines = [line for line in self.error.splitlines() if line.startswith("flatout: ")]
        return lines[-1].removeprefix("flatout: ") if lines else ""


def named_backend(script: Path) -> str | None:
    """The backend that a script chooses for itself."""
    found = _NAMES_A_BACKEND.search(script.read_text(encoding="utf-8"))
    return found[1] if found else None


def run_recorded(script: Path, backend: str, way: tuple[str, ...], cache: Path, limit: float) -> RecordedRun:
    """Run `python [way] script` in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="script-") as folder:
        histories = Path(folder, "histories.jsonl")
        working = Path(folder, "working")
        working.mkdir()
        paths = [str(_RECORDER), str(_SOURCES), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "KERAS_BACKEND": backend,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "RECORDED_HISTORIES": str(histories),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "XDG_CACHE_HOME": str(cache),
        }
        command = [sys.executable, *way, str(script.absolute())]
        began = time.perf_counter()
        try:
            done = subprocess.run(command, cwd=working, env=environment, capture_output=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return RecordedRun(None, "", limit, f"ran past its limit of {limit:.0f} s")
        seconds = time.perf_counter() - began
        printed, error = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
        records = [json.loads(line) for line in histories.read_text().splitlines()] if histories.exists() else []
        # Processes of one script end in any order; the fits of each stay in theirs.
        fits = sorted((one for one in records if "history" in one), key=lambda fit: fit["process"])
        in_fits = sum(one.get("fit_seconds", 0.0) for one in records)
        return RecordedRun(done.returncode, printed, seconds, error, fits, in_fits)
