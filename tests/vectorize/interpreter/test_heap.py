"""Losses with lists, dicts and objects that are nested, filled in helpers, or known by several names."""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any

import pytest
from keras import ops

import flatout

pytestmark = pytest.mark.turns


class Meter:
    def __init__(self, scale=1.0):
        self.parts = {"value": [], "n": 0}
        self.scale = scale

    def add(self, x):
        self.parts["value"].append(self.scale * x)
        self.parts["n"] += 1

    @property
    def mean(self):
        return sum(self.parts["value"]) / self.parts["n"]


def new_meter(scale):
    return Meter(scale)


def push(rows, t, p):
    rows.append(ops.mean(ops.square(t - p)))


def push_both(parts, t, p):
    push(parts["near"], t, p)
    push(parts["far"], t, 2.0 * p)


def list_in_dict(y_true, y_pred):
    parts = {"near": [], "far": []}
    for t, p in zip(y_true, y_pred, strict=False):
        push_both(parts, t, p)
    return sum(parts["near"]) + ops.max(ops.stack(parts["far"]))


def object_from_helper(y_true, y_pred):
    meter = new_meter(0.5)
    for t, p in zip(y_true, y_pred, strict=False):
        meter.add(ops.mean(ops.abs(t - p)))
    return meter.mean


def alias_of_list(y_true, y_pred):
    rows = []
    same = rows
    for t, p in zip(y_true, y_pred, strict=False):
        same.append(ops.mean(ops.square(t - p)))
    return sum(rows) / len(same)


def filled_in_helper(y_true, y_pred):
    def grouped():
        sums = defaultdict(float)
        for t, p in zip(y_true, y_pred, strict=False):
            sums[int(t)] += p
        return sums

    return sum(ops.square(one) for one in grouped().values())


def sums_of_inner_loop(y_true, y_pred):
    sums = {}
    for i in range(y_pred.shape[0]):
        for k in range(y_pred.shape[1]):
            g = int(y_true[i])
            sums[g] = sums.get(g, 0.0) + ops.square(y_pred[i, k])
    return sum(ops.sqrt(1.0 + sums[g]) for g in sums)


def dict_of_dicts(y_true, y_pred):
    stats = defaultdict(lambda: {"sum": 0.0, "n": 0})
    for t, p in zip(y_true, y_pred, strict=False):
        mine = stats[int(t)]
        mine["sum"] += p
        mine["n"] += 1
    return sum(ops.square(one["sum"] / one["n"]) for one in stats.values())


def dict_of_lists_of_object(y_true, y_pred):
    class_rows = {"all": Meter(2.0)}
    for t, p in zip(y_true, y_pred, strict=False):
        class_rows["all"].add(ops.mean(ops.square(t - p)))
    return class_rows["all"].mean


def nested_nonlocal(y_true, y_pred):
    total, count = 0.0, 0

    def visit(t, p):
        nonlocal total, count

        def add(x):
            nonlocal total
            total = total + x

        if float(ops.mean(t)) > 0:
            add(ops.mean(ops.square(t - p)))
            count += 1

    for t, p in zip(y_true, y_pred, strict=False):
        visit(t, p)
    return total / max(count, 1)


def rebuilt_list(y_true, y_pred):
    rows = []
    for t, p in zip(y_true, y_pred, strict=False):
        rows = rows + [ops.mean(ops.abs(t - p))]  # noqa: RUF005
    return ops.max(ops.stack(rows))


def last_of_key(y_true, y_pred):
    last = {}
    for t, p in zip(y_true, y_pred, strict=False):
        last[int(t)] = ops.square(p)
    return sum(last.values()) / len(last)


REWRITTEN = [
    list_in_dict,
    object_from_helper,
    alias_of_list,
    filled_in_helper,
    sums_of_inner_loop,
    dict_of_dicts,
    dict_of_lists_of_object,
    nested_nonlocal,
    rebuilt_list,
    last_of_key,
]

SHARED: dict[str, Any] = {"rows": []}


def alias_is_read_in_the_loop(y_true, y_pred):
    rows = []
    same = rows
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        rows.append(ops.mean(t - p))
        total = total + ops.tanh(sum(same))
    return total


def entry_of_the_step_before(y_true, y_pred):
    state = {"rows": [0.0]}
    for t, p in zip(y_true, y_pred, strict=False):
        state["rows"].append(0.9 * state["rows"][-1] + ops.mean(t - p))
    return sum(state["rows"])


def outside_by_an_alias(y_true, y_pred):
    rows = SHARED["rows"]
    for t, p in zip(y_true, y_pred, strict=False):
        rows.append(ops.mean(t - p))
    return sum(rows[-len(y_true) :])


def object_is_changed_by_its_alias(y_true, y_pred):
    meter = Meter()
    other = meter
    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        meter.add(ops.mean(ops.square(t - p)))
        total = total + other.parts["n"] * ops.mean(p)
    return total


def default_is_shared(y_true, y_pred):
    def keep(x, rows=[]):  # noqa: B006
        rows.append(x)
        return sum(rows)

    total = 0.0
    for t, p in zip(y_true, y_pred, strict=False):
        total = total + keep(ops.mean(t - p))
    return total


KEPT = [
    alias_is_read_in_the_loop,
    entry_of_the_step_before,
    outside_by_an_alias,
    object_is_changed_by_its_alias,
    default_is_shared,
]


@pytest.mark.turns
@pytest.mark.parametrize("loss", REWRITTEN, ids=lambda loss: loss.__name__)
def test_is_rewritten(loss):
    quick = flatout.vectorize(loss)
    assert quick.applied, f"{quick.reason}\n{quick.source}"
    assert "for " not in inspect.cleandoc(quick.source)


@pytest.mark.turns
@pytest.mark.parametrize("loss", KEPT, ids=lambda loss: loss.__name__)
def test_is_left_alone(loss):
    quick = flatout.vectorize(loss)
    assert not quick.applied
    assert quick.reason
