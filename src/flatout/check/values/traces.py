"""What a value owes to earlier iterations of the loops around it, and so what a loop carries.

In an iteration, whatever is read before it is set there comes from an earlier one and is traced. Operators and calls
say how a traced value goes on: `total + x` is a sum of it, `0.9 * total + x` anything. What the iteration leaves in a
place at its end says whether the loop only reduces, or has a state.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SAME, MIXED, JOINED = "same", "mixed", "joined"
# How the value of a place becomes its next one, where the order of the steps does not matter.
_KINDS = {
    kind: name
    for name, kinds in {
        "sum": "Add Sub add",
        "product": "Mult Div multiply",
        "max": "max maximum fmax",
        "min": "min minimum fmin",
        "and": "BitAnd logical_and",
        "or": "BitOr logical_or",
        "logaddexp": "logaddexp",
        # `array = array.write(i, value)`, `array.at[i].set(value)`: a place of its own for each iteration.
        JOINED: "concatenate append extend insert write set scatter index_put index_add slice_scatter",
    }.items()
    for kind in kinds.split()
}


class Slot(NamedTuple):
    """A place that holds a value: a name of a scope, an attribute of an object, or an entry of what they hold."""

    owner: Any
    name: str
    entry: str = ""

    @property
    def whole(self) -> Slot:
        """The place that an entry is of."""
        return self._replace(entry="")


# The counter or element of a loop.
ELEMENT = Slot(None, "element")
Traces = Mapping[tuple["Iteration", Slot], str]
NO_TRACES: Traces = {}


def used(traces: Traces) -> Traces:
    """The traces of what is computed from a value somehow."""
    return dict.fromkeys(traces, MIXED)


def either(first: Traces, second: Traces) -> Traces:
    """The traces of what is one value or the other."""
    if not first or not second:
        return first or second
    found = dict(first)
    for key, kind in second.items():
        before = found.get(key, SAME)
        found[key] = kind if before == SAME else before if kind in (SAME, before) else MIXED
    return found


def combined(how: str, operands: Sequence[Traces]) -> Traces:
    """The traces of what an operator or a function makes of its operands."""
    if how == "where" and len(operands) > 1:
        chosen = functools.reduce(either, operands[1:])
        return {**chosen, **used(operands[0])}
    kind = _KINDS.get(how)
    found: dict[tuple[Iteration, Slot], str] = {}
    for at, traces in enumerate(operands):
        for key, before in traces.items():
            keeps = kind and before in (SAME, kind) and key not in found and not (at and how in ("Sub", "Div"))
            found[key] = str(kind) if keeps else MIXED
    return found


@dataclass(eq=False)
class Iteration:
    """One walk through the body of a loop."""

    scopes: set[Any] = field(default_factory=set)  # Of functions that it calls: their names are gone when they return.
    written: dict[Slot, Traces] = field(default_factory=dict)  # What the places that were set hold then.
    read: set[Slot] = field(default_factory=set)  # The places whose value went elsewhere than into another place.
    keys: dict[Slot, Traces] = field(default_factory=dict)  # What keys of entries are made of that are no constants.

    def write(self, slot: Slot, traces: Traces) -> None:
        """Set a place."""
        if slot.owner not in self.scopes:
            own = {key: kind for key, kind in traces.items() if key[0] is self}
            self.written[slot] = either(self.written.get(slot, NO_TRACES), own)

    def carried(self) -> list[Slot]:
        """The places whose value depends on the iteration before, other than as a reduction."""
        needs = {slot: self._needs(traces) for slot, traces in self.written.items()}
        found = []
        for slot, needed in needs.items():
            has_own_place = self._moves({place for owner, place in self.keys.get(slot, ()) if owner is self})
            if has_own_place or slot not in _reached(slot, needs) or self._is_steady(slot, needed):
                continue
            is_read = slot in self.read or any(slot in others for other, others in needs.items() if other != slot)
            if is_read or needed.get(slot, MIXED) == MIXED:
                found.append(slot)
        return list(dict.fromkeys([*found, *self._tables(needs)]))

    def only_reduces(self) -> bool:
        """Whether all that is left by an iteration is a sum of what was there, or the like."""
        kinds = [self._needs(traces).get(slot, MIXED) for slot, traces in self.written.items()]
        return bool(kinds) and not self.carried() and not {SAME, MIXED} & set(kinds)

    def _needs(self, traces: Traces) -> dict[Slot, str]:
        """The places that a value depends on; a part of what was set as a whole is that whole."""
        found: dict[Slot, str] = {}
        for (_, slot), kind in traces.items():
            for one in self.written:
                if one.whole == slot.whole and one != slot and slot.entry.startswith(one.entry):
                    slot, kind = one, MIXED
            found[slot] = kind if found.get(slot, kind) == kind else MIXED
        return found

    def _moves(self, slots: set[Slot]) -> bool:
        return any(slot is ELEMENT or slot in self.written for slot in slots)

    def _is_steady(self, slot: Slot, needed: Mapping[Slot, str]) -> bool:
        """`name + 1`, `name * gamma`: known by the number of the step."""
        return needed.get(slot) in ("sum", "product") and not self._moves(set(needed) - {slot})

    def _tables(self, needs: Mapping[Slot, Mapping[Slot, str]]) -> Iterator[Slot]:
        """What is filled and read back at another place: dynamic programming."""
        for slot in dict.fromkeys([*(slot for needed in needs.values() for slot in needed), *self.read]):
            others = [one for one in self.written if one.entry and one.whole == slot.whole]
            is_apart = not any(one.entry.startswith(slot.entry) for one in others)
            if slot.entry and others and is_apart and any(one in self.keys for one in (slot, *others)):
                yield slot.whole


def _reached(slot: Slot, needs: Mapping[Slot, Mapping[Slot, str]]) -> set[Slot]:
    """The places that the value of a place comes from, in this iteration or an earlier one."""
    seen: set[Slot] = set()
    queue = set(needs[slot])
    while queue:
        seen |= queue
        queue = {one for reached in queue for one in needs.get(reached, ())} - seen
    return seen
