"""What to change: findings with the line that causes them and the gain that was measured, or bounded, for each."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.when_used import keras

from .diagnosis_facts import NO_TIME, Change, Gain, HotLine, Part
from .measuring.ablation import Ablation
from .measuring.batch_shapes import BatchShapes
from .measuring.flatout_runs import FlatoutRun
from .measuring.host_syncs import HostSync
from .step_budget import HIGHLY, LONG_TO_COMPILE, MODERATELY, MOSTLY_COMPILED, FitLength, between_epochs

# What makes a loss slow; other rules are about what is wrong in it, whatever its speed.
_SLOW = ("FO10", "FO20", "FO30", "FO40")
# A gain that is worth a change.
_WORTH = 1.05
# What is left of a Python loop over rows as operations on whole arrays, mostly and at most.
_LEFT_OF_LOOP, _MOST_LEFT_OF_LOOP = 1 / 40, 1 / 4


@dataclass(frozen=True)
class Evidence:
    """What was seen of a fit; `kind` is the verdict's, `command` what runs the script with flatout."""

    ablation: Ablation
    parts: tuple[Part, ...]
    epoch: tuple[Part, ...]
    length: FitLength
    hot_lines: tuple[HotLine, ...]
    syncs: list[HostSync]
    loss: Any
    flatout: tuple[FlatoutRun, ...]
    is_planned: bool
    data_kind: str
    kind: str
    on_gpu: bool
    command: str
    shapes: BatchShapes

    @property
    def step(self) -> np.ndarray:
        return self.ablation.seconds("real", "bar")

    def gain(self, step: np.ndarray, is_measured: bool = False) -> Gain:
        """Of epochs whose steps take so long, with all that is between them and after them as it is."""
        return _gain(self.length.epoch(self.step), self.length.epoch(step), is_measured)

    def hottest(self, part: str) -> HotLine:
        """The line of a part in which the user's Python spends most time."""
        found = (one for one in self.hot_lines if one.part == part)
        return next(found, HotLine(part, "", 0, "a callback", "", 0.0))

    def share(self, name: str) -> float:
        return next((part.share for part in (*self.parts, *self.epoch) if part.name == name), 0.0)


def findings(evidence: Evidence) -> tuple[Change, ...]:
    """All of them, those that gain most first."""
    found = [*_input(evidence), *_callbacks(evidence), *_loss(evidence), *_fixed(evidence), *_shapes(evidence)]
    found += [*_validation(evidence), *_compiling(evidence, found), *_dtype(evidence)]
    found += [*_syncs(evidence, {(one.path, one.line) for one in found}), *_flatout(evidence)]
    return tuple(sorted(found, key=lambda one: -(one.gain.times if one.gain else 0.0)))


def _input(evidence: Evidence) -> Iterator[Change]:
    share = evidence.share("input")
    if share < MODERATELY or evidence.data_kind == "arrays" or evidence.shapes.are_many:
        return
    step, waited = evidence.step, evidence.ablation.seconds("input", "bar") - evidence.ablation.seconds("cached")
    line = next((one for one in evidence.hot_lines if one.part == "input"), None)
    why = f"{share:.0%} of each step waits for the {evidence.data_kind}."
    if line is None:
        change = "Read it in the background or in worker processes, and convert rows once, before training."
        yield Change("FO901", "The input is slow", why, change, gain=evidence.gain(step - waited))
        return
    first, last = _loop_around(line)
    lines = [one for one in evidence.hot_lines if one.part == "input" and one.path == line.path]
    of_loop = sum(one.share for one in lines if first <= one.line <= last) / max(sum(one.share for one in lines), 1e-9)
    yield Change(
        "FO901",
        f"`{line.function}` keeps the device waiting",
        f"{why} Most of it is in this line and the loop around it." if first < last else f"{why} Most of it is here.",
        "Compute it for all rows at once (NumPy on the whole batch), or once before training; or make the generator a "
        "keras.utils.PyDataset with workers > 1.",
        line.path,
        line.line,
        _source(line.path, first, last),
        gain=_of_loop(evidence, of_loop * waited) if first < last else evidence.gain(step - waited),
    )


def _callbacks(evidence: Evidence) -> Iterator[Change]:
    at_batches, at_epochs = evidence.share("callbacks"), evidence.share("epoch-callbacks")
    length, before = evidence.length, evidence.length.epoch(evidence.step)

    def change(part: str, often: str, why: str, instead: str, after: str, gain: Gain) -> Change:
        line = evidence.hottest(part)
        before, title = _source(line.path, line.line, line.line), f"`{line.function}` runs at every {often}"
        return Change("FO907", title, why, instead, line.path, line.line, before, after, gain)

    if at_batches >= MODERATELY:
        without = replace(length, between=between_epochs(evidence.ablation, with_callbacks=False))
        yield change(
            "callbacks",
            "batch",
            f"{at_batches:.0%} of each step is spent in your callbacks.",
            "Do it in on_epoch_end, or every hundredth batch: `if batch % 100: return`.",
            "    if batch % 100:\n        return",
            _gain(before, without.epoch(evidence.ablation.seconds("bar")), is_measured=True),
        )
    if at_epochs >= HIGHLY:
        without = replace(length, callbacks=NO_TIME)
        yield change(
            "epoch-callbacks",
            "epoch",
            f"{at_epochs:.0%} of each epoch is spent in your callbacks at its beginning and its end.",
            "Do it every few epochs, or on fewer rows.",
            "    if epoch % 5:\n        return",
            _gain(before, without.epoch(evidence.step), is_measured=False),
        )


def _loss(evidence: Evidence) -> Iterator[Change]:
    if evidence.loss is None:
        return
    from flatout.check.examining.examine import findings_of  # It takes its time.

    backend = keras.config.backend()
    found = [one for one in findings_of(evidence.loss, backend) if one.severity != "info"]
    gain, vectorized = _gain_of_loss(evidence, "one row", "trivial loss"), _gain_of_loss(evidence, "vectorized loss")
    by_itself = ""
    if vectorized is not None and vectorized.low >= _WORTH:
        by_itself = f" `flatout.vectorize` does it: {vectorized.times:.1f} times faster, measured here."
    for one in found:
        is_slow = one.code.startswith(_SLOW)
        yield Change(
            one.code,
            one.message,
            one.why,
            one.fix + by_itself,
            one.path,
            one.line,
            _source(one.path, one.line, one.line),
            gain=gain if is_slow and gain is not None and gain.times >= _WORTH else None,
        )
    if not any(one.code.startswith(_SLOW) for one in found) and evidence.share("loss") >= HIGHLY:
        lines = [one for one in evidence.hot_lines if one.part == "loss"]
        code = evidence.loss.__code__
        path, line = (lines[0].path, lines[0].line) if lines else (code.co_filename, code.co_firstlineno)
        why = f"{evidence.share('loss'):.0%} of each step is spent in it."
        change = "See what it computes that the mean of a few array operations does not; `flatout check` has rules."
        yield Change("FO902", f"`{evidence.loss.__name__}` is slow", why, change, path, line, gain=gain)


def _gain_of_loss(evidence: Evidence, *names: str) -> Gain | None:
    """Of the first loss that was timed in the place of the user's; compiling counts where the fit is bound by it."""
    variants, length = evidence.ablation.variants, evidence.length
    name = next((name for name in names if name in variants), None)
    if name is None:
        return None
    saved = evidence.ablation.seconds("cached") - evidence.ablation.seconds(name)
    compiling = max(0.0, variants["cached"].compiling - variants[name].compiling)
    is_measured = name == "vectorized loss"
    if evidence.kind == "compile-bound":
        after = length.seconds(evidence.step - saved) - compiling
        return _gain(length.seconds(evidence.step), after, is_measured)
    return evidence.gain(evidence.step - saved, is_measured)


def _fixed(evidence: Evidence) -> Iterator[Change]:
    share = evidence.share("launch") + evidence.share("host")
    larger = evidence.ablation.variants.get("larger")
    if evidence.kind not in ("launch-bound", "host-bound") or larger is None:
        return
    rows = evidence.ablation.rows
    # Of as many rows as a step has now.
    gain = evidence.gain(evidence.ablation.seconds("larger") * rows / larger.rows, is_measured=True)
    if gain.times >= _WORTH:
        yield Change(
            "FO903",
            "The batch is small for this model",
            f"{share:.0%} of each step is the same for a batch of any size.",
            f"Train with batch_size={larger.rows}, and a learning rate to go with it: fewer, larger steps are another "
            "training. `python -m flatout` keeps the batch, and the results.",
            before=f"batch_size={rows}",
            after=f"batch_size={larger.rows}",
            gain=gain,
        )


def _shapes(evidence: Evidence) -> Iterator[Change]:
    shapes, length = evidence.shapes, evidence.length
    if not shapes.again:
        return
    whole = length.seconds(evidence.step)
    again = shapes.again * evidence.ablation.variants["cached"].compiling
    if shapes.are_many:
        waited = evidence.ablation.seconds("input", "bar") - evidence.ablation.seconds("cached")
        gain = _gain(whole, length.seconds(evidence.step - waited) - again, is_measured=False)
        change = "Pad them to one shape, or to a few: keras.utils.pad_sequences, `drop_remainder=True`, buckets."
    else:
        gain = _gain(whole, whole - again, is_measured=False)
        change = "Take a batch_size that divides the number of rows. `python -m flatout` compiles one shape only."
    if gain.times >= _WORTH:
        yield Change(
            "FO906",
            "The step is compiled again for each shape of a batch",
            f"{shapes.batches} batches have {len(shapes.shapes)} shapes: {'; '.join(shapes.shapes[:4])}. "
            f"Compiling takes {evidence.ablation.variants['cached'].compiling:.1f} s.",
            change,
            gain=gain,
            is_automatic=evidence.is_planned and not shapes.are_many,
        )


def _validation(evidence: Evidence) -> Iterator[Change]:
    validation = evidence.share("validation")
    if validation >= HIGHLY:
        # A fifth of it is left.
        times, most = 1 / (1 - 0.8 * validation), 1 / (1 - validation)
        yield Change(
            "FO908",
            "Validation takes long",
            f"{validation:.0%} of each epoch is validation.",
            "Validate every few epochs, and in larger batches.",
            after="validation_freq=5, validation_batch_size=1024",
            gain=Gain(times, 1.0, most, is_measured=False),
        )


def _compiling(evidence: Evidence, found: list[Change]) -> Iterator[Change]:
    compiling = evidence.share("compile")
    # Loops that are unrolled, and shapes, are what makes it long; where they are found, it is said there.
    is_known = any(one.gain is not None and one.code.startswith(("FO10", "FO906")) for one in found)
    if compiling >= MOSTLY_COMPILED and evidence.length.compiling >= LONG_TO_COMPILE and not is_known:
        times = 1 / (1 - compiling)
        cache = {"jax": "JAX_COMPILATION_CACHE_DIR=~/.cache/jax"}.get(keras.config.backend(), "")
        yield Change(
            "FO905",
            "Compiling takes long",
            f"The first step takes {evidence.length.compiling:.1f} s more than those after it.",
            "Python loops are unrolled into the program: write them as array operations. Keep what was compiled: "
            + (cache or "train several models, or more epochs, in one process."),
            after=cache,
            gain=Gain(times, 1.0, times, is_measured=False),
        )


def _dtype(evidence: Evidence) -> Iterator[Change]:
    if evidence.on_gpu and evidence.kind == "compute-bound" and keras.config.dtype_policy().name == "float32":
        yield Change(
            "FO904",
            "The model computes in float32",
            "Most of each step computes, on a device that is faster with 16 bits. Not measured: results change.",
            "Compute in bfloat16, keep variables in float32, and compare what you get.",
            after='keras.config.set_dtype_policy("mixed_bfloat16")',
        )


def _syncs(evidence: Evidence, known: set[tuple[str, int]]) -> Iterator[Change]:
    for sync in evidence.syncs:
        if (sync.path, sync.line) not in known and (evidence.on_gpu or sync.part == "loss"):
            yield Change(
                "FO201",
                f"{sync.how} waits for the device",
                f"{sync.count} times in a few steps: nothing is launched meanwhile.",
                "Keep values on the device, and read them once in an epoch.",
                sync.path,
                sync.line,
                sync.source,
            )


def _flatout(evidence: Evidence) -> Iterator[Change]:
    accelerated = [run for run in evidence.flatout if run.report.accelerated]
    if not accelerated:
        return
    best = max(accelerated, key=lambda run: run.times.mid)
    # What it takes between epochs was timed with its steps.
    rest = replace(evidence.length, between=NO_TIME)
    before = evidence.length.epoch(evidence.step)
    low, mid, high = (
        float(np.median(before / rest.epoch(evidence.step / times)))
        for times in (best.times.low, best.times.mid, best.times.high)
    )
    gain = Gain(mid, low, high, is_measured=True)
    if gain.low < _WORTH:
        return
    code = {"input-bound": "FO901", "host-bound": "FO902", "launch-bound": "FO903"}.get(evidence.kind, "FO902")
    where = "" if best.placement == "auto" else f' (data="{best.placement}")'
    planned = (
        "" if evidence.is_planned else " For a fit as short as this one it would not begin: compiling takes longer."
    )
    yield Change(
        code,
        "flatout runs the same steps sooner",
        f"Timed here on your model and data, with the {best.report.engine} engine, {best.report.data} data{where}."
        + planned,
        "Run the script as it is, with the same results.",
        after=evidence.command,
        gain=gain,
        is_automatic=evidence.is_planned,
    )


def _of_loop(evidence: Evidence, loop: np.ndarray) -> Gain:
    """Of a loop over rows that becomes array code: about what that takes, and nothing at all as the bound."""
    about, least, most = (
        evidence.gain(evidence.step - (1 - left) * loop) for left in (_LEFT_OF_LOOP, _MOST_LEFT_OF_LOOP, 0.0)
    )
    return Gain(about.times, min(about.low, least.times), most.times, is_measured=False)


def _gain(before: np.ndarray, after: np.ndarray, is_measured: bool) -> Gain:
    """Of draws, each with its own ratio; what is left after a change is never less than nothing."""
    times = np.median(before) / max(np.median(after), 0.01 * np.median(before))
    low, high = np.quantile(before / np.maximum(after, 0.01 * before), [0.05, 0.95])
    return Gain(float(times), float(min(low, times)), float(max(high, times)), is_measured)


def _loop_around(line: HotLine) -> tuple[int, int]:
    """The first and last line of the outermost loop around a line, in its function; else the line itself."""
    try:
        tree = ast.parse(Path(line.path).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return line.line, line.line
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    around = [node for node in functions if node.lineno <= line.line <= (node.end_lineno or 0)]
    if not around:
        return line.line, line.line
    function = max(around, key=lambda node: node.lineno)
    loops: Iterable[Any] = (
        node
        for node in ast.walk(function)
        if isinstance(node, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp))
        and node.lineno <= line.line <= (node.end_lineno or 0)
        # What makes a batch each time round is the generator itself.
        and not any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in ast.walk(node))
    )
    outermost = min(loops, key=lambda node: node.lineno, default=None)
    return (outermost.lineno, outermost.end_lineno or outermost.lineno) if outermost else (line.line, line.line)


def _source(path: str, first: int, last: int) -> str:
    return "".join(linecache.getline(path, number) for number in range(first, min(last, first + 19) + 1)).rstrip("\n")
