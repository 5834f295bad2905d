"""Whether what the Python of a step reads is still as it was when the step was recorded.

Stock Keras on torch runs that Python at every step, a replay never: a replay holds as long as nothing has changed that
the recorded functions look at.
"""

from __future__ import annotations

import operator
import types
from typing import Any

from .python_state import ABSENT, attribute_of, contents_of, same, same_contents

# What fit, evaluate and predict themselves set.
_OF_THE_LOOP = frozenset({"training", "stop_training", "stop_evaluating", "stop_predicting"})


class ReadGuards:
    """Names and containers that may be read, collected while a step is recorded; then `settle`, then `hold`."""

    def __init__(self, things: dict[int, Any]) -> None:
        # Owners of names, and containers.
        self._things = things
        self._names: dict[int, set[str]] = {}
        self._containers: dict[int, bool] = {}
        self.tables = (self._names, self._containers)
        self._entries: list[tuple[Any, str]] = []
        self._values: list[Any] = []
        self._others: list[tuple[Any, str, Any]] = []
        self._copies: list[tuple[Any, Any]] = []

    def keep_name(self, owner: Any, name: str) -> None:
        """Guard a name of a module's or another dict, an attribute of an object, or the contents of a cell."""
        if name not in _OF_THE_LOOP:
            self._things[id(owner)] = owner
            self._names.setdefault(id(owner), set()).add(name)

    def keep_container(self, container: Any) -> None:
        """Guard the contents of a container or an array."""
        self._things[id(container)] = container
        self._containers[id(container)] = True

    def settle(self) -> None:
        """Take all as it is now."""
        self._entries, self._values, self._others, self._copies = [], [], [], []
        for key in self._names.keys() | self._containers.keys():
            thing = self._things[key]
            space = thing if isinstance(thing, dict) else getattr(thing, "__dict__", None)
            for name in self._names.get(key, ()):
                if space is not None and not isinstance(getattr(type(thing), name, None), types.MemberDescriptorType):
                    self._entries.append((space.get, name))
                    self._values.append(space.get(name, ABSENT))
                else:
                    self._others.append((thing, name, attribute_of(thing, name)))
            if key in self._containers:
                self._copies.append((thing, contents_of(thing)))
        self._things = {}

    def hold(self) -> bool:
        """Whether nothing has changed since `settle`."""
        now = [get(name, ABSENT) for get, name in self._entries]
        return (
            (all(map(operator.is_, now, self._values)) or all(map(same, now, self._values)))
            and all(same(attribute_of(thing, name), value) for thing, name, value in self._others)
            and all(same_contents(thing, copy) for thing, copy in self._copies)
        )
