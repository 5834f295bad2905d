"""Modules that are imported when they are first used: `import flatout` loads none of them, nor chooses a backend."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import types
from pathlib import Path
from typing import Any


class _WhenUsed(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


jax: Any = _WhenUsed("jax")
keras: Any = _WhenUsed("keras")
ops: Any = _WhenUsed("keras.ops")
pandas: Any = _WhenUsed("pandas")
pyarrow: Any = _WhenUsed("pyarrow")
tf: Any = _WhenUsed("tensorflow")
torch: Any = _WhenUsed("torch")
tree: Any = _WhenUsed("keras.tree")


def keras_home() -> Path:
    """Where Keras keeps its settings and data sets."""
    return Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")


def configured_backend() -> str | None:
    """The backend that keras.json names, without importing Keras."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return json.loads((keras_home() / "keras.json").read_text(encoding="utf-8")).get("backend")
    return None
