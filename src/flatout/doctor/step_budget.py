"""From timed variants to parts of a step, and from parts to a verdict in the words and limits of XProf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .diagnosis_facts import NO_TIME, Interval, Part
from .measuring.ablation import Ablation
from .measuring.batch_shapes import NO_SHAPES, BatchShapes

# XProf's: from here on a step is moderately, or highly, bound by its input; kernel launches have limits of their own.
MODERATELY, HIGHLY = 0.05, 0.20
# Every step has some fixed cost; below this, a larger batch or fewer launches would not change much.
_MOSTLY_FIXED = 0.40
# Parts that together take so many times the step were timed while the machine did something else: nothing is told.
_NO_SUM = 1.5

# Every fit compiles; what takes longer than this is worth a thought, if it is a good part of the fit.
LONG_TO_COMPILE, MOSTLY_COMPILED = 2.0, 0.5

_MOSTLY_VALIDATED = 0.5
# Of a fit that computes, these are told besides.
_MODERATE = ("input", "callbacks", "loss", "transfer")

_LABELS = {
    "callbacks": "your callbacks",
    "progress": "progress bar and logs",
    "input": "waiting for input",
    "transfer": "copying the batch to the device",
    "loss": "loss",
    "metrics": "metrics",
    "host": "Keras' loop in Python",
    "launch": "launching operations",
    "compute": "computing",
}
_KINDS = {
    "input": "input-bound",
    "callbacks": "callback-bound",
    "loss": "loss-bound",
    "host": "host-bound",
    "launch": "launch-bound",
    "transfer": "transfer-bound",
}
_ASKED = {
    "input": "waits for its input",
    "callbacks": "is spent in your callbacks",
    "loss": "is spent in your loss",
    "host": "is spent in Python before anything is computed",
    "launch": "goes to launching operations, whatever the size of the batch",
    "transfer": "copies the batch to the device",
}


@dataclass(frozen=True)
class FitLength:
    """How much of everything a whole fit has."""

    steps: int
    epochs: int
    validation: Interval
    compiling: float
    between: Interval = NO_TIME
    callbacks: Interval = NO_TIME

    def epoch(self, step: Any) -> Any:
        """Seconds of an epoch, by those of a step."""
        return self.steps * step + self.between.mid + self.callbacks.mid + self.validation.mid

    def seconds(self, step: Any) -> Any:
        """Seconds of the whole fit."""
        return self.compiling + self.epochs * self.epoch(step)


def between_epochs(ablation: Ablation, with_callbacks: bool = True) -> Interval:
    """Seconds that Keras takes between two epochs; nothing where that cannot be told from noise."""
    if "bar epochs" not in ablation.variants:
        return NO_TIME
    epoch, step = ablation.seconds("bar epochs"), ablation.seconds("bar")
    at_epochs = 0.0
    if with_callbacks:
        epoch, step = ablation.seconds("real epochs", "bar epochs"), ablation.seconds("real", "bar")
        at_epochs = ablation.at_epochs.mid
    found = Interval.of(list(map(float, ablation.steps_of_epoch * (epoch - step) - at_epochs)))
    return found if found.low > 0 else NO_TIME


def parts_of_step(ablation: Ablation, busy: float | None = None) -> tuple[Part, ...]:
    """Where a step's time goes, each part as the difference of two variants; `busy` seconds of it the GPU works."""
    real = ablation.seconds("real", "bar")
    bar, read = ablation.seconds("bar"), ablation.seconds("input", "bar")
    cached = ablation.seconds("cached")
    copied = ablation.seconds("transfer", "cached")
    host = ablation.seconds("empty", "cached") if "empty" in ablation.variants else np.zeros_like(cached)
    loss = cached - ablation.seconds("trivial loss", "cached")
    metrics = cached - ablation.seconds("no metrics", "cached")
    rest = np.maximum(cached - host - np.maximum(loss, 0) - np.maximum(metrics, 0), 0)
    fixed = fixed_share(cached, host, rest, ablation.seconds("twice") if "twice" in ablation.variants else None, busy)
    found = {
        "callbacks": real - bar,
        "progress": bar - read,
        "input": read - copied,
        "transfer": copied - cached,
        "loss": loss,
        "metrics": metrics,
        "host": np.minimum(host, cached),
        "launch": rest * fixed,
        "compute": rest * (1 - fixed),
    }
    seconds = {name: Interval.of(list(map(float, values))) for name, values in found.items()}
    told = {name: max(0.0, one.mid) for name, one in seconds.items() if one.low > 0 or name == "compute"}
    whole = float(np.median(real))
    if sum(told.values()) > _NO_SUM * whole:
        told = {}
    return tuple(
        Part(name, _LABELS[name], one, told.get(name, 0.0) / whole, name in told)
        for name, one in seconds.items()
        if not one.mid == one.high == 0.0
    )


def fixed_share(
    cached: np.ndarray, host: np.ndarray, rest: np.ndarray, twice: np.ndarray | None, busy: float | None
) -> np.ndarray:
    """How much of the `rest` of a step is launching: what does not grow with the rows, else while the GPU waits."""
    if twice is not None:
        return np.clip((2 * cached - twice - host) / np.maximum(cached - host, 1e-9), 0, 1)
    if busy is not None:
        return np.clip(1 - busy / np.maximum(rest, 1e-9), 0, 1)
    return np.zeros_like(cached)


def parts_of_epoch(length: FitLength, step: Interval) -> tuple[Part, ...]:
    """Where an epoch's time goes; and compiling, as its share of the whole fit."""
    steps = Interval(*(length.steps * value for value in (step.low, step.mid, step.high)))
    whole = length.epoch(step.mid)
    parts = [Part("steps", f"{length.steps} steps", steps, steps.mid / whole)]
    for name, label, seconds in (
        ("between", "between two epochs", length.between),
        ("epoch-callbacks", "your callbacks at epochs", length.callbacks),
        ("validation", "validation", length.validation),
    ):
        if seconds.mid:
            parts.append(Part(name, label, seconds, seconds.mid / whole))
    compiling = Interval(length.compiling, length.compiling, length.compiling)
    share = length.compiling / length.seconds(step.mid)
    return (*parts, Part("compile", "compiling, once; share of the whole fit", compiling, share))


def verdict_of(
    parts: tuple[Part, ...],
    epoch: tuple[Part, ...],
    is_users_loss: bool,
    is_users_input: bool,
    shapes: BatchShapes = NO_SHAPES,
) -> tuple[str, str]:
    """The kind of a fit's bottleneck, and a sentence.

    What code of the user's takes comes first, if it is much: it can be changed, and hides what is behind it.
    """
    shares = {part.name: part.share for part in parts}
    if not is_users_loss:
        # Keras' own, of which nothing is to be taken away.
        shares["compute"] = shares.get("compute", 0.0) + shares.pop("loss", 0.0)
    of_epoch = {part.name: part for part in epoch}
    compiling, validation, at_epochs = (of_epoch.get(one) for one in ("compile", "validation", "epoch-callbacks"))
    assert compiling is not None
    name, share = _largest(shares, is_users_input)
    of_fit = share * (1.0 - compiling.share)
    seconds = compiling.seconds.mid
    if shapes.are_many and name == "input":
        # To which compiling in the midst of the steps is added.
        many = f"{shapes.batches} batches have {len(shapes.shapes)} shapes, and the step is compiled for each."
        return "compile-bound", f"Compile-bound: {many}"
    if seconds >= LONG_TO_COMPILE and compiling.share >= max(MOSTLY_COMPILED, of_fit):
        return "compile-bound", f"Compile-bound: compiling takes {seconds:.1f} s, {compiling.share:.0%} of the fit."
    if validation is not None and validation.share > max(_MOSTLY_VALIDATED, of_fit):
        return "validation-bound", f"Validation-bound: {validation.share:.0%} of each epoch is validation."
    if at_epochs is not None and at_epochs.share >= max(HIGHLY, share * of_epoch["steps"].share):
        return (
            "callback-bound",
            f"Highly callback-bound: {at_epochs.share:.0%} of each epoch is spent in your callbacks.",
        )
    if name:
        return _KINDS[name], f"Highly {_KINDS[name]}: {share:.0%} of each step {_ASKED[name]}."
    computes = shares.get("compute", 0.0)
    if computes < 0.5 and not any(part.is_separable for part in parts if part.name != "compute"):
        return "not separable", "Not separable: the machine is too noisy to tell the parts of a step apart."
    also = [(one, part) for one, part in shares.items() if one in _MODERATE and part >= MODERATELY]
    second, its_share = max(also, key=lambda one: one[1], default=("", 0.0))
    more = f"; moderately {_KINDS[second]}, with {its_share:.0%}" if second else ""
    return "compute-bound", f"Compute-bound: {computes:.0%} of each step computes{more}."


def _largest(shares: dict[str, float], is_users_input: bool) -> tuple[str, float]:
    """The part that holds a step back most, and its share; nothing if it mostly computes."""
    of_user = ["callbacks", "loss", *(["input"] if is_users_input else [])]
    found = {name: shares[name] for name in of_user if shares.get(name, 0.0) >= HIGHLY}
    if not found:
        found = {name: shares[name] for name in ("input", "transfer") if shares.get(name, 0.0) >= HIGHLY}
        launch, host = shares.get("launch", 0.0), shares.get("host", 0.0)
        if launch + host >= _MOSTLY_FIXED:
            found["launch" if launch >= host else "host"] = launch + host
    name = max(found, key=lambda one: found[one], default="")
    return name, found.get(name, 0.0)
