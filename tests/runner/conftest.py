"""Programs run in real processes, by plain Python and by flatout; a stand-in for Keras makes them quick."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import PATH

# Its conductor stands in for `flatout.fit.conduct`, so that these tests are about the runner alone.
_KERAS = '''
import os, sys
import flatout

__version__ = "{version}"

class Trainer:
    def fit(self, x=None, y=None):
        """Trains."""
        print("stock fit", os.environ.get("KERAS_BACKEND"), flush=True)
        return "history"
    def evaluate(self, x=None): return "evaluated"
    def predict(self, x): return "predicted"

class Model(Trainer): pass

def conduct(method, model, args, kwargs):
    from flatout.seam.stock_methods import original
    from flatout.base.report import record
    why = flatout.Reason("fake", "Nothing is trained.")
    record(flatout.RunReport(method, False, "stock", "host", 0, 0.0, (why,)))
    return original(method)(model, *args, **kwargs)

sys.modules["flatout.fit"].conduct = conduct
'''


class Folder:
    """A folder with programs in it, and ways to run them."""

    def __init__(self, path: Path):
        self.path = path
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("FLATOUT", "KERAS"))},
            "PYTHONPATH": PATH,
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def python(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.path,
            env={**self.environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def flatout(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "flatout", *arguments, stdin=stdin, **environment)

    def add_fake_keras(self, version: str = "3.15.1", name: str = "keras") -> None:
        """A package called `keras` (or `tf_keras`), found before the real one, with a Model that trains nothing."""
        self.write(f"fake/{name}/__init__.py", _KERAS.format(version=version))
        self.environment["PYTHONPATH"] += os.pathsep + str(self.path / "fake")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
