"""`ops.cond` without a decision in Python: both branches run, and the results of one are chosen.

Keras' torch backend decides with `if pred:`, which reads the device and would be baked into a recording. Gradient
accumulation, EMA overwriting, loss scaling and schedules with warm-up depend on it. Variables that a branch changes
are put back before the other branch runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from keras.src import tree

from .recorder import Journal, Recorder

Branch = Callable[[], Any]


def branch_free(recorder: Recorder, original: Callable[[Any, Branch, Branch], Any]) -> Callable[..., Any]:
    """A stand-in for `keras.src.backend.torch.core.cond` while `recorder` records."""

    def cond(pred: Any, true_fn: Branch, false_fn: Branch) -> Any:
        pred = getattr(pred, "value", pred)
        if not isinstance(pred, torch.Tensor) or pred.is_meta or recorder.is_constant(pred):
            return original(pred, true_fn, false_fn)
        with torch.no_grad():
            pred = (pred != 0).reshape(())
        true_out, true_changes = _run_branch(recorder, true_fn)
        with torch.no_grad():
            true_state = {key: tensor.detach().clone() for key, (tensor, _) in true_changes.items()}
            for tensor, before in true_changes.values():
                tensor.detach().copy_(before)
        false_out, false_changes = _run_branch(recorder, false_fn)
        with torch.no_grad():
            for key, (tensor, before) in {**true_changes, **false_changes}.items():
                tensor.detach().copy_(torch.where(pred, true_state.get(key, before), tensor.detach()))
        return _choose(recorder, pred, true_out, false_out)

    return cond


def _run_branch(recorder: Recorder, branch: Branch) -> tuple[Any, Journal]:
    journal = Journal(recorder.storage_count)
    recorder.journals.append(journal)
    try:
        return branch(), journal
    finally:
        recorder.journals.pop()


def _choose(recorder: Recorder, pred: torch.Tensor, true_out: Any, false_out: Any) -> Any:
    try:
        tree.assert_same_structure(true_out, false_out)
    except (TypeError, ValueError):
        recorder.fail("untraceable", "the branches of ops.cond return different structures")

    def choose(a: Any, b: Any) -> Any:
        a, b = getattr(a, "value", a), getattr(b, "value", b)
        if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
            if type(a) is type(b) and a == b:
                return a
            recorder.fail("untraceable", "the branches of ops.cond return different Python values")
        if a.shape != b.shape or a.dtype != b.dtype:
            recorder.fail("untraceable", "the branches of ops.cond return different shapes or dtypes")
        if a.requires_grad or b.requires_grad:
            # The branch not taken would get zeros for gradients where Keras has none, and 0 * inf is NaN.
            recorder.fail("untraceable", "gradients flow through ops.cond")
        return torch.where(pred, a, b)

    return tree.map_structure(choose, true_out, false_out)
