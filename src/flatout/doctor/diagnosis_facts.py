"""What a diagnosis consists of: the step's budget, the verdict, what to change. Others measure it, others draw it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Interval:
    """A quantity as it was measured: the middle, and where nine of ten measurements like it would lie."""

    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Interval:
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        cuts = statistics.quantiles(samples, n=20, method="inclusive")
        return cls(float(cuts[0]), float(cuts[9]), float(cuts[18]))


NO_TIME = Interval(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Part:
    """A part of a step, or of an epoch.

    Attributes:
        name: One word: "input", "callbacks", "progress", "loss", "metrics", "host", "launch", "compute", "transfer"; of
            an epoch "steps", "between", "epoch-callbacks", "validation", "compile".
        label: What it is, for people.
        seconds: How long it takes, in a step or in an epoch.
        share: Of the whole, from 0 to 1; what cannot be told from noise has 0.
        is_separable: Whether it can be told from noise.
    """

    name: str
    label: str
    seconds: Interval
    share: float
    is_separable: bool = True


@dataclass(frozen=True)
class Gain:
    """How many times faster training would be: `low` to `high` as measured; else about `times`, and `high` at most."""

    times: float
    low: float
    high: float
    is_measured: bool


@dataclass(frozen=True)
class Change:
    """Something to change.

    Attributes:
        code: Of the rule, such as "FO901".
        title: What it is, in a line.
        why: What was seen.
        change: What to do.
        path: The user's file; empty if there is no line to it.
        line: The line in it.
        before: The code as it is; may be empty.
        after: The code as it could be; may be empty.
        gain: What the change brings; None if that was not measured.
        is_automatic: Whether `python -m flatout` does it by itself.
    """

    code: str
    title: str
    why: str
    change: str
    path: str = ""
    line: int = 0
    before: str = ""
    after: str = ""
    gain: Gain | None = None
    is_automatic: bool = False


@dataclass(frozen=True)
class Variant:
    """The step as it was timed with something taken away, or on another engine; `seconds` of a step."""

    name: str
    label: str
    seconds: Interval


@dataclass(frozen=True)
class Span:
    """A stretch of the timeline, in seconds since its beginning; `lane` is what it belongs to, as in `Part.name`."""

    lane: str
    name: str
    start: float
    seconds: float


@dataclass(frozen=True)
class Memory:
    """Bytes, and of what."""

    label: str
    nbytes: int


@dataclass(frozen=True)
class HotLine:
    """A line of the user's in which a thread was found; `share` is of the time of the whole fit."""

    part: str
    path: str
    line: int
    function: str
    source: str
    share: float


@dataclass(frozen=True)
class DiagnosisFacts:
    """Where a fit's time goes, what to change, and what that will gain.

    Attributes:
        kind: "input-bound", "callback-bound", "loss-bound", "host-bound", "launch-bound", "compute-bound",
            "transfer-bound", "validation-bound" or "compile-bound"; "not separable" if noise hides all of them.
        verdict: One sentence.
        facts: Names and values about the run: script, model, backend, device, batch size, steps an epoch, epochs.
        step: Seconds of a step, as stock Keras runs it.
        parts: The budget of a step; their shares add up to about 1.
        epoch: The budget of an epoch: steps, validation; and compiling, which is paid once.
        variants: What was timed.
        findings: Ranked by gain.
        hot_lines: Where the user's own Python spends its time.
        timeline: Some steps.
        memory: What takes memory, and the most that was used.
        plan: What `python -m flatout` would do with this fit, and why.
        unchecked: What was not looked at, and why.
        seconds: How long the diagnosis took.
        device_busy: Share of the time in which the GPU works; None if there is none, or nobody knows.
    """

    kind: str
    verdict: str
    facts: dict[str, str]
    step: Interval
    parts: tuple[Part, ...]
    epoch: tuple[Part, ...]
    variants: tuple[Variant, ...]
    findings: tuple[Change, ...]
    hot_lines: tuple[HotLine, ...] = ()
    timeline: tuple[Span, ...] = ()
    memory: tuple[Memory, ...] = ()
    plan: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    seconds: float = 0.0
    device_busy: float | None = None
    version: int = field(default=1, kw_only=True)

    def to_json(self) -> dict[str, Any]:
        """For machines: plain values alone."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain
