"""FO108: arrays and lists whose length depends on the data. The rule's page is in rules_loops.py."""

from __future__ import annotations

import ast

from flatout.check.reading.events import Called, Subscripted, Tested, WalkedLoop
from flatout.check.reading.walking import Walking
from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Data, data_in
from flatout.pysource.trees import dotted, walk

_DYNAMIC = frozenset({"boolean_mask", "nonzero", "argwhere", "dynamic_partition", "unique", "unique_with_counts"})


def filters(loop: WalkedLoop, scene: Walking) -> None:
    """A comprehension that keeps some elements."""
    for node, value in loop.filters:
        if isinstance(value, Data) and value.role != "all_but_one":
            scene.report(
                "FO108",
                node,
                f"How many elements `{scene.code(node)}` keeps depends on the data.",
                "Compute on all of them and mask: `ops.where(condition, term, 0.0)`, and count with `ops.sum` of the "
                "mask.",
            )


def called(event: Called, scene: Walking) -> None:
    """A call that gives as many elements as the data say."""
    inputs = data_in([*event.arguments, *filter(None, [event.receiver])])
    if all(one.on_host for one in inputs):
        return
    one_argument = event.operation == "where" and len(event.arguments) + len(event.keywords) == 1
    if (event.operation in _DYNAMIC or one_argument) and "size" not in event.keywords:
        scene.report(
            "FO108",
            event.node,
            f"The length of what `{scene.code(event.node.func)}` gives depends on the data.",
        )
    elif event.operation == "top_k" and _is_read_number(_count_of(event)):
        scene.report(
            "FO108",
            event.node,
            f"How many elements `{scene.code(event.node.func)}` gives depends on a value of the batch.",
            "A fixed k, or a sort of all elements and a mask: `ops.arange(n) < count`.",
        )


def _count_of(event: Called) -> AbstractValue:
    """The `k` of `ops.top_k(x, k)`, `torch.topk(x, k)` and `x.topk(k)`."""
    places = event.arguments if isinstance(event.receiver, Data) else event.arguments[1:]
    return event.keywords.get("k", places[0] if places else UNKNOWN)


def subscripted(event: Subscripted, scene: Walking) -> None:
    """A mask, or a slice up to a number of the batch."""
    if event.written or not isinstance(event.base, Data) or event.base.on_host:
        return
    text = scene.code(event.node)
    if any(isinstance(one, Data) and one.role == "mask" and one.axes for one in event.index):
        scene.report("FO108", event.node, f"`{text}` selects by a mask, so its length depends on the data.")
    ends = [end for pair in event.slices for end in pair if end is not None]
    if any(_is_read_number(end) for end in ends):
        scene.report(
            "FO108",
            event.node,
            f"The length of `{text}` depends on a value of the batch.",
            "A static mask in the place of the slice: `ops.arange(length)[None, :] < n[:, None]`; a mean divides by "
            "the number of kept elements, at least 1.",
        )


def _is_read_number(value: AbstractValue) -> bool:
    return isinstance(value, Data) and bool(value.origins)


def tested(event: Tested, scene: Walking) -> None:
    """A list that grows under a condition on the data."""
    if not isinstance(event.value, Data) or event.value.role == "all_but_one" or event.body is None or not scene.loops:
        return
    if not event.value.origins or not isinstance(event.node, ast.If):
        return
    for node in walk(event.body):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            scene.report(
                "FO108",
                node,
                f"How long `{dotted(node.func.value)}` gets depends on the data.",
                "Compute every element and mask: `ops.where(condition, term, 0.0)`.",
            )
            return
