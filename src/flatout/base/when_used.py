"""Modules that are imported when they are first used: `import flatout` loads none of them, nor chooses a backend."""

from __future__ import annotations

import importlib
import types
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
