"""Acceleration for the processes that `multiprocessing` starts with "spawn" and "forkserver".

Such a child gets a dict from its parent (paths, argv, the main script) before it imports anything of the user's.
We add one entry, which switches flatout on when it is unpickled. No environment variable, no `.pth` file:
programs that the script starts in other ways stay as they are. Forked children have everything already.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

_ROOT = str(Path(__file__).absolute().parents[2])


class _SwitchOn:
    """Unpickles by switching flatout on, without notices and closing line: those are the parent's."""

    def __init__(self, settings: dict[str, Any]):
        self._settings = settings

    def __reduce__(self) -> tuple[Any, ...]:
        # The child takes over the parent's sys.path only after unpickling this, so it is told where flatout is.
        source = (
            f"import sys; sys.path.append({_ROOT!r})\n"
            f"from flatout.runner.switch import install; install({self._settings!r}, quiet=True)"
        )
        return exec, (source, {})


# What children get, or None while flatout is off.
_settings: dict[str, Any] | None = None


def inherit(settings: dict[str, Any], module: ModuleType) -> None:
    """Switch flatout on in the children, with `settings` as they are when a child starts."""
    global _settings
    _settings = settings
    spawn: Any = module
    original = spawn.get_preparation_data
    if original.__module__ == __name__:
        return

    def get_preparation_data(name: str) -> dict[str, Any]:
        data = original(name)
        return data if _settings is None else {**data, "flatout": _SwitchOn(dict(_settings))}

    spawn.get_preparation_data = get_preparation_data


def disinherit() -> None:
    """Take back `inherit`. The wrapper stays, without effect: others may have wrapped it in turn."""
    global _settings
    _settings = None
