"""Along which axis a loop runs, and what one of its elements is."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass

from flatout.check.values import operation_results as operations
from flatout.check.values.abstract_values import (
    AXES,
    BATCH,
    CLASSES,
    GROUPS,
    LAST,
    STATIC,
    UNKNOWN,
    AbstractValue,
    Bound,
    Counter,
    Data,
    Sequence,
    Shape,
    Size,
    Static,
    Together,
    Tuple,
    Unknown,
    merge_all,
)

from .events import WalkedLoop

_BATCH_NAME = re.compile(r"batch|(^|_)bs$|n_?samples|num_?samples|sample_?count", re.IGNORECASE)
_TIME_NAME = re.compile(r"time|seq|horizon|frames?$|max_?len|n_?steps$|num_?steps$|window|positions?$", re.IGNORECASE)
_CLASS_NAME = re.compile(
    r"class|categor|channel|quantile|taus?$|bins?$|labels?$|heads?$|keypoint|outputs?$", re.IGNORECASE
)
_TIME_COUNTER = re.compile(r"^(t|tt|ts|step|time|frame|pos|tau|timestep|time_step|token)$", re.IGNORECASE)
_CLASS_COUNTER = re.compile(
    r"^(c|cc|cls|klass|class_.*|k|q|ch|channel|label|lab|category|quantile|head|bin)$", re.IGNORECASE
)
# Axes that grow with the data; the others are known and mostly short.
GROWING = frozenset({BATCH, GROUPS, *AXES})


@dataclass(frozen=True)
class Domain:
    """What a loop runs along."""

    labels: tuple[str, ...]
    length: int | None = None
    direct: bool = False
    by_data: bool = False
    whole: bool = False


def domain(iterated: AbstractValue, text: str) -> Domain:
    """The axis, or axes, that a loop over `iterated` runs along; `text` is how it is written."""
    if isinstance(iterated, Data):
        if iterated.mapping or not iterated.origins:
            label = iterated.axes[0] if iterated.axes else STATIC
            return Domain((label if label in GROWING and not iterated.mapping else STATIC,))
        return Domain((iterated.axes[0] if iterated.axes else LAST,), direct=not iterated.on_host)
    if isinstance(iterated, Bound):
        return _bounded(iterated, text)
    if isinstance(iterated, Sequence):
        labels = (iterated.label,) * (2 if iterated.is_pairs else 1)
        return Domain(labels, iterated.length, by_data=iterated.selected)
    if isinstance(iterated, Together):
        return _together(iterated, text)
    if isinstance(iterated, Tuple):
        return Domain((STATIC,), len(iterated.items))
    if isinstance(iterated, Static):
        return Domain((STATIC,), iterated.length)
    return Domain((STATIC,))


def _bounded(iterated: Bound, text: str) -> Domain:
    bound = iterated.bound
    if isinstance(bound, (Size, Counter)):
        label = bound.label
        return Domain((label if label != "constant" else STATIC,), iterated.length)
    if isinstance(bound, Data):
        return Domain((CLASSES if bound.role in ("max", "argmax") else AXES[1],), by_data=True)
    if isinstance(bound, (Static, Unknown)):
        word = re.split(r"[^\w]+", text.rstrip(")"))[-1] if text else ""
        if _BATCH_NAME.search(word):
            return Domain((BATCH,), iterated.length)
        if word == "T" or (_TIME_NAME.search(word) and not _CLASS_NAME.search(word)):
            return Domain((AXES[1],), iterated.length)
        if _CLASS_NAME.search(word):
            return Domain((CLASSES,), iterated.length)
    return Domain((STATIC,), iterated.length)


def _together(iterated: Together, text: str) -> Domain:
    # What is iterated beside a tensor is no dict. The text of the whole says nothing of one of its parts.
    items = [dataclasses.replace(item, mapping=False) if isinstance(item, Data) else item for item in iterated.items]
    parts = [domain(item, text if len(items) == 1 else "") for item in (items if len(items) > 1 else iterated.items)]
    if not parts:
        return Domain((STATIC,))
    if iterated.how == "product":
        return Domain(
            tuple(label for part in parts for label in part.labels),
            None if any(part.length is None for part in parts) else math.prod(part.length or 0 for part in parts),
            any(part.direct for part in parts),
        )
    if iterated.how == "enumerate":
        return parts[0]
    lengths = [part.length for part in parts if part.length is not None]
    if any(part.labels == (STATIC,) for part in parts):
        whole = any(isinstance(item, Data) and item.origins for item in iterated.items)
        return Domain((STATIC,), min(lengths) if lengths else None, whole=whole)
    first = parts[0]
    return Domain(first.labels[:1], min(lengths) if lengths else None, any(p.direct for p in parts), first.by_data)


def element(iterated: AbstractValue, loop: WalkedLoop) -> AbstractValue:
    """One element of what a loop runs over."""
    number = id(loop)
    if isinstance(iterated, Data):
        return dataclasses.replace(operations.first_element(iterated), loop=number)
    if isinstance(iterated, Bound):
        return Counter(loop.labels[0], number)
    if isinstance(iterated, Sequence):
        inner = iterated.element
        return dataclasses.replace(inner, loop=number) if isinstance(inner, (Data, Counter, Static)) else inner
    if isinstance(iterated, Together):
        if iterated.how == "enumerate":
            counter = Counter(loop.labels[0], number)
            return Tuple((counter, element(iterated.items[0], loop) if iterated.items else UNKNOWN))
        return Tuple(tuple(element(item, loop) for item in iterated.items))
    if isinstance(iterated, Tuple) and iterated.items:
        merged = merge_all(iterated.items)
        return dataclasses.replace(merged, loop=number) if isinstance(merged, (Data, Static)) else merged
    if isinstance(iterated, Static):
        return Static("object", loop=number)
    return Size(loop.labels[0]) if isinstance(iterated, Shape) else UNKNOWN


def settled(label: str, variables: tuple[str, ...]) -> str:
    """The label, corrected where the names of the counters say which axis is meant: `t` for time, `c` for classes."""
    if label == LAST and any(_TIME_COUNTER.match(name) for name in variables):
        return AXES[1]
    if label == AXES[1] and any(_CLASS_COUNTER.match(name) for name in variables):
        return CLASSES
    return label
