"""Whether what the Python of a step reads is still as it was when the step was recorded.

Stock Keras on torch runs that Python at every step, a replay never: a replay holds as long as nothing has changed that
the recorded functions look at.
"""

from __future__ import annotations

import gc
import itertools
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Set
from typing import Any

from torch import Tensor

from .python_state import contents_of, same, same_contents

# What fit, evaluate and predict themselves set.
OF_THE_LOOP = frozenset({"training", "stop_training", "stop_evaluating", "stop_predicting", "history"})
OF_THE_LOOP |= {"train_function", "test_function", "predict_function", "_eval_epoch_iterator"}
# What each step leaves behind, and the next one drops unread.
OF_THE_LOOP |= {"_losses", "_loss_ids"}
# Stands for all names that an owner may get later.
ANY = "*"


class ReadGuards:
    """Names and containers that may be read, collected while a step is recorded; then `settle`, then `hold`."""

    def __init__(self, things: dict[int, Any]) -> None:
        # Owners of names, and containers.
        self._things = things
        self._names: dict[int, set[str]] = {}
        self._containers: dict[int, bool] = {}
        self.tables = (self._names, self._containers)

    def keep_names(self, owner: Any, names: Set[str]) -> None:
        """Guard names of a dict, an object, a class or a module: what they stand for, and that others do not come."""
        if names:
            self._things[id(owner)] = owner
            self._names.setdefault(id(owner), set()).update(names)

    def keep_container(self, container: Any) -> None:
        """Guard the contents of a container, an array, a function, an object made in C or with slots."""
        self._things[id(container)] = container
        self._containers[id(container)] = True

    def settle(self, tensors: list[Tensor]) -> None:
        """Take all as it is now; also whether gradients flow to `tensors`, and which hooks they have."""
        self._gradients = [(tensor, _gradients_of(tensor)) for tensor in tensors]
        self._owners = [self._things[key] for key in self._names]
        self._classes = list(map(type, self._owners))
        # Whatever takes several names from a space at once, and what it took.
        self._readers: list[Callable[[Any], tuple[Any, ...]]] = []
        self._read: list[Any] = []
        self._values: list[Any] = []
        # Names of dicts, by which something could come that is not there.
        self._missing: list[tuple[Any, set[str]]] = []
        for owner, names in zip(self._owners, self._names.values(), strict=True):
            space = space_of(owner)
            known = [*(names & space.keys())]
            if known:
                # The first one twice: a getter of one name gives no tuple.
                reader = operator.itemgetter(known[0], *known)
                self._readers.append(reader)
                self._read.append(space)
                self._values += reader(space)
            self._missing.append((space, names - space.keys()))
        containers = [self._things[key] for key in self._containers]
        self._missing += [(container, {ANY}) for container in containers if _is_empty(container)]
        self._copies = [(thing, contents_of(thing)) for thing in containers if not _is_empty(thing)]
        self._spaces = [space for space, _ in self._missing]
        self._counts = list(map(len, self._spaces))
        self._things = {}

    def hold(self) -> bool:
        """Whether nothing has changed since `settle`."""
        # Thousands of names are looked at before each epoch: by loops of C as far as possible.
        return (
            self._values_are_same()
            and all(map(operator.is_, map(type, self._owners), self._classes))
            and self._none_has_come()
            and all(same_contents(thing, copy) for thing, copy in self._copies)
            and all(_gradients_of(tensor) == before for tensor, before in self._gradients)
        )

    def _values_are_same(self) -> bool:
        try:
            now = list(itertools.chain.from_iterable(map(operator.call, self._readers, self._read)))
        except KeyError:
            return False
        return all(map(operator.is_, now, self._values)) or all(map(same, now, self._values))

    def _none_has_come(self) -> bool:
        counts = map(operator.ne, map(len, self._spaces), self._counts)
        for space, missing in itertools.compress(self._missing, counts):
            if ANY in missing or not missing.isdisjoint(space):
                return False
        return True


def _gradients_of(tensor: Tensor) -> tuple[bool, list[Any], list[Any]]:
    hooks, late_hooks = tensor._backward_hooks or {}, tensor._post_accumulate_grad_hooks or {}
    return tensor.requires_grad, [*hooks.values()], [*late_hooks.values()]


def space_of(owner: Any) -> Any:
    """The dict that holds the names of an owner, which may be that dict; None if it has none."""
    if type(owner) in (dict, OrderedDict):
        return owner
    space = getattr(owner, "__dict__", None)
    # A class shows a proxy of its dict, which is slow.
    return gc.get_referents(space)[0] if isinstance(space, types.MappingProxyType) else space


def _is_empty(container: Any) -> bool:
    return isinstance(container, (list, dict, set, deque)) and not container
