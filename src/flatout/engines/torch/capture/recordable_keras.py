"""Keras' decisions and draws on the host, in forms that can be recorded.

`ops.cond` decides with `if pred:`, which reads the device and would be baked into a recording. Gradient accumulation,
EMA overwriting, loss scaling and schedules with warm-up depend on it. Here both branches run, and the results of one
are chosen; variables that a branch changes are put back before the other branch runs.

`torch_seed_generator` makes a new generator for each seeded draw, seeded with the sum of the seed generator's state,
read on the host. Here one generator serves each place in the step, and a reseeding is written down before the draw.

Up to Keras 3.13 a step makes Python numbers of its logs, and one-hot vectors by a function of torch that looks at the
labels first. Both would read the device. Here logs stay tensors, and wrong labels fail when they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from keras.src import tree
from keras.src.random.seed_generator import draw_seed
from keras.src.utils import python_utils
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from flatout.engines.torch.graph.step_graph import Instruction
from flatout.seam import torch_backend
from flatout.seam.patches import beneath, replaced_here

from .recorder import Changes, Recorder

Branch = Callable[[], Any]


class Reseed:
    """Seeds the generator of one place in the step, as `torch_seed_generator` does."""

    def __init__(self, device: Any):
        self.generator = torch.Generator(device=device)

    def __call__(self, total: torch.Tensor | int) -> None:
        self.generator.manual_seed(int(total) & 0xFFFFFFFF)


def replaced_for(recorder: Recorder, reseeds: list[Reseed]) -> AbstractContextManager[None]:
    """All replaced while `recorder` records; `reseeds`, in the order of their use, serve every recording of a step."""
    core, random = torch_backend.core, torch_backend.random
    cond, seed_generator = beneath(core, "cond"), beneath(random, "torch_seed_generator")
    modules = [module for module in torch_backend.modules_with("cond") if beneath(module, "cond") is cond]
    return replaced_here(
        {
            **{(module, "cond"): _without_branches(recorder, cond) for module in modules},
            (random, "torch_seed_generator"): _recorded_seeds(recorder, reseeds, seed_generator),
            (python_utils, "pythonify_logs"): _flattened,
            (functional, "one_hot"): _one_hot(beneath(functional, "one_hot")),
        }
    )


def _one_hot(original: Callable[..., Any]) -> Callable[..., Any]:
    def one_hot(labels: torch.Tensor, num_classes: int = -1) -> Any:
        if num_classes < 1 or labels.is_meta:
            return original(labels, num_classes)
        zeros = torch.zeros(*labels.shape, num_classes, dtype=labels.dtype, device=labels.device)
        return zeros.scatter_(-1, labels.unsqueeze(-1), 1)

    return one_hot


def _flattened(logs: dict[str, Any] | None) -> dict[str, Any]:
    """As `pythonify_logs`, with the values as they are."""
    flat: dict[str, Any] = {}
    for name, value in sorted((logs or {}).items()):
        flat.update(_flattened(value) if isinstance(value, dict) else {name: value})
    return flat


def _recorded_seeds(recorder: Recorder, reseeds: list[Reseed], original: Callable[..., Any]) -> Callable[..., Any]:
    used = 0

    def torch_seed_generator(seed: Any) -> torch.Generator | None:
        nonlocal used
        device = torch_backend.get_device()
        if device == "meta":
            return original(seed)
        if recorder.journals:
            recorder.fail("untraceable", "a seed is drawn inside a branch of ops.cond")
        if used == len(reseeds):
            reseeds.append(Reseed(device))
        reseed, used = reseeds[used], used + 1
        first, second = draw_seed(seed)
        total = first + second
        recorder.graph.instructions.append(Instruction(reseed, (recorder.refs(total),), {}, None))
        with _disable_current_modes():
            reseed(total)
        return reseed.generator

    return torch_seed_generator


def _without_branches(recorder: Recorder, original: Callable[[Any, Branch, Branch], Any]) -> Callable[..., Any]:
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


def _run_branch(recorder: Recorder, branch: Branch) -> tuple[Any, Changes]:
    changes: Changes = {}
    recorder.journals.append((recorder.storage_count, changes))
    try:
        return branch(), changes
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
