"""`flatout check --run`: import the files, trace what they define at several batch sizes, and compare with the source.

What the source shows and the trace confirms says so; what only the trace shows is added.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import math
import os
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import CannotRun
from flatout.check.examining.examine import Findings, python_files
from flatout.check.rules.catalogue import RULES
from flatout.check.rules.rule import SEVERITIES, Backend, Finding, Severity, by_place
from flatout.pysource.trees import walk
from flatout.vectorize.verify.gradients import Arrays, value_and_gradient

from .live_functions import SIZES, Probe, innermost, parse, probes

_ARITHMETIC = re.compile(r"^(aten::r?)?(add|sub|mul|(real)?div)(v2)?$", re.IGNORECASE)
# A batch size that is the length of nothing else.
_ODD = 11
# What an exception while tracing stands for: its class, a part of its text, the rule.
_ERRORS = {
    "jax": (
        ("TracerBoolConversionError", "", "FO202"),
        ("TracerArrayConversionError", "", "FO205"),
        ("NonConcreteBooleanIndexError", "", "FO108"),
        ("TracerIntegerConversionError", "", "FO201"),
        ("ConcretizationTypeError", "", "FO201"),
        ("AttributeError", "numpy", "FO201"),
    ),
    "tensorflow": (
        ("OperatorNotAllowedInGraphError", "terating over", "FO101"),
        ("OperatorNotAllowedInGraphError", "", "FO202"),
        ("NotImplementedError", "numpy", "FO205"),
        ("AttributeError", "numpy", "FO201"),
        *(("TypeError", part, "FO201") for part in ("float()", "int()", "__index__")),
        ("ValueError", "create variables", "FO302"),
    ),
    "torch": (("RuntimeError", "does not require grad", "FO501"),),
}
# The trace knows the function of these, not the line.
_ANYWHERE = frozenset({"FO101", "FO103", "FO303", "FO304", "FO305", "FO501", "FO502"})


def traced(
    findings: list[Finding], paths: Iterable[Path], backend: Backend, inputs: str | None = None
) -> list[Finding]:
    """The findings of the source, confirmed or joined by those of a trace."""
    tools = _tools(backend)
    found = {(one.code, str(Path(one.path).resolve()), one.line, one.column): one for one in findings}
    given = parse(inputs) if inputs else None
    # What the files print while they run must not mix with the report.
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in python_files(paths):
            for probe in probes(path, given):
                for seen in _seen(probe, tools, backend):
                    _add(found, probe, seen, backend)
    return by_place(found.values())


def _tools(backend: Backend) -> Any:
    keras = sys.modules.get("keras")
    if keras is not None and keras.config.backend() != backend:
        raise CannotRun(
            f"--run needs a process with its own backend. Received: --backend {backend}, while Keras runs "
            f"{keras.config.backend()}. Run `flatout check` as a command."
        )
    os.environ["KERAS_BACKEND"] = backend
    return importlib.import_module(f"flatout.check.probing.{backend}_probe")


# -- what is seen


_Seen = tuple[str, int, str, "Severity | None"]  # The code of the rule, the line, the message.


def _seen(probe: Probe, tools: Any, backend: Backend) -> Iterator[_Seen]:
    function, inputs = probe.function, probe.inputs
    try:
        runs = [list(tools.operations(function, inputs.draw(size), probe.names)) for size in (*SIZES, _ODD)]
    except Exception as error:
        yield from _failed(error, probe, backend)
        return
    yield from _growth([Counter(one.line for one in run) for run in runs[:-1]], probe)
    if backend == "torch":  # On the others, a read is an error while tracing.
        for (code, line), count in tools.host_reads(function, inputs.draw(SIZES[1]), probe.names).items():
            times = f"{count} times" if count > 1 else "once"
            yield code, line, f"This line waits for the device {times} in a call at batch {SIZES[1]}.", None
    for one in runs[-1]:
        if _ARITHMETIC.search(one.name) and sorted(one.shapes) == [(_ODD,), (_ODD, 1)]:
            yield "FO503", one.line, "(B,) meets (B, 1) here: the result is (B, B).", None
    yield from _frozen(probe, tools, backend)
    yield from _unseen_changes(probe, tools)
    yield from _gradient(probe)


def _failed(error: Exception, probe: Probe, backend: Backend) -> Iterator[_Seen]:
    kinds, text = {kind.__name__ for kind in type(error).__mro__}, str(error).lower()
    code = next((code for kind, part, code in _ERRORS[backend] if kind in kinds and part in text), "")
    line = innermost(reversed(list(traceback.walk_tb(error.__traceback__))), probe.names)
    if code and line is not None:
        first = str(error).strip().splitlines()[0][:120] if str(error).strip() else ""
        yield code, line, f"Tracing stops here on {backend}: {type(error).__name__}: {first}", "error"


def _growth(counts: list[Counter[int]], probe: Probe) -> Iterator[_Seen]:
    totals = [sum(one.values()) for one in counts]
    first, second = totals[1] - totals[0], totals[2] - totals[1]
    if first <= 0 or second <= 0:
        return
    degree = round(math.log2(second / first))
    if degree < 1:
        return
    worst = max(counts[2], key=lambda line: counts[2][line] - counts[0][line])
    code = "FO101" if degree == 1 else "FO103"
    sizes = ", ".join(map(str, SIZES))
    grows = "linearly" if degree == 1 else f"with power {degree}"
    message = f"The operations grow {grows} with the batch: {totals[0]}, {totals[1]}, {totals[2]} at batch {sizes}."
    yield code, _loop_around(worst, probe), message, None


def _loop_around(line: int, probe: Probe) -> int:
    """Where the outermost loop of the function around a line begins."""
    for node in walk(probe.root.function.node):
        if isinstance(node, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            begins = probe.file.place(node).line
            if begins <= line <= (node.end_lineno or begins):
                return begins
    return line


def _frozen(probe: Probe, tools: Any, backend: Backend) -> Iterator[_Seen]:
    """Python state and random numbers: does the compiled function see what plain Python sees?"""
    values = probe.inputs.draw(SIZES[0])
    calls = [0]

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return probe.function(*args, **kwargs)

    try:
        plain = [_eager(probe.function, values) for _ in range(2)]
        before = _state_of(probe.function)
        run = tools.compiled(counted)
        compiled = [run(values) for _ in range(3)]
    except Exception:
        return
    changed = [name for name, value in _state_of(probe.function).items() if before.get(name) != value]
    differs = not _equal(plain[0], plain[1])
    if changed:
        names = ", ".join(f"`{name}`" for name in changed)
        ran = f"the body ran {calls[0]} times in 3 steps"
        yield "FO303", probe.line, f"A call changes {names}; {ran}.", "wrong"
    elif differs and _equal(compiled[1], compiled[2]):
        message = "Two calls in plain Python differ, two compiled calls do not: random numbers, or state, are frozen."
        yield "FO304", probe.line, message, "wrong"
    if backend != "torch" and calls[0] > 2:
        message = f"The function was traced {calls[0]} times for 3 calls with the same shapes."
        yield "FO308", probe.line, message, "slow"


def _unseen_changes(probe: Probe, tools: Any) -> Iterator[_Seen]:
    """Change what others change between steps, and see whether the compiled function notices."""
    function = getattr(probe.function, "__func__", probe.function)
    values = probe.inputs.draw(SIZES[0])
    for name, value in _outside(function)[0].items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_variable = hasattr(value, "assign") and hasattr(value, "numpy")
        if not (probe.root.changes_elsewhere(name) if is_number else is_variable and name in probe.root.facts.assigned):
            continue
        try:
            run = tools.compiled(probe.function)
            before = run(values)
            with _changed(function.__globals__, name, value, is_variable):
                plain, after = _eager(probe.function, values), run(values)
        except Exception:
            continue
        if not _equal(plain, before) and _equal(after, before):
            code = "FO305" if is_variable else "FO303"
            message = f"Verified: after a change of `{name}` the compiled function gives what it gave before."
            yield code, probe.line, message, "wrong"


@contextlib.contextmanager
def _changed(names: dict[str, Any], name: str, value: Any, is_variable: bool) -> Iterator[None]:
    """Another value for a moment."""
    before = np.array(value.numpy()) if is_variable else value
    put = value.assign if is_variable else functools.partial(names.__setitem__, name)
    put(before * 2 + 1)
    try:
        yield
    finally:
        put(before)


def _outside(function: Callable[..., Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The globals that a function reads, and the names of the functions around it."""
    try:
        found = inspect.getclosurevars(function)
    except (TypeError, ValueError):  # No function of Python, or one around it has not come so far.
        return {}, {}
    return found.globals, found.nonlocals


def _state_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The numbers, and the lengths of containers, that a function can reach by name."""
    constants, cells = _outside(function)
    state: dict[str, Any] = {}
    for name, value in {**constants, **cells}.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            state[name] = value
        elif isinstance(value, (list, dict, set)):
            state[name] = repr(value) if len(value) < 20 else len(value)
    return state


def _gradient(probe: Probe) -> Iterator[_Seen]:
    root = probe.root
    values = probe.inputs.draw(SIZES[1])
    if root.kind != "loss" or not root.must_learn or not np.issubdtype(values[root.pred_name].dtype, np.floating):
        return
    try:
        _, found = value_and_gradient(probe.function, values, root.pred_name)
    except Exception:
        return
    if found is None or not np.any(found):
        message = "The gradient with respect to the outputs is zero everywhere, at random inputs."
        yield "FO501", probe.line, message, None
    elif np.isnan(found).any():
        share = float(np.isnan(found).mean())
        yield "FO502", probe.line, f"{share:.0%} of the gradient is NaN at ordinary inputs.", None


def _eager(function: Callable[..., Any], values: Arrays) -> np.ndarray:
    return value_and_gradient(function, values, None)[0]


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    return np.array_equal(first, second, equal_nan=True)


# -- joining


def _add(found: Findings, probe: Probe, seen: _Seen, backend: Backend) -> None:
    """Confirm a finding of the source near the place, or add one of the trace."""
    code, line, message, severity = seen
    path = str(probe.file.path.resolve())
    node = probe.root.function.node
    begins, ends = node.lineno, node.end_lineno or node.lineno
    wide = code in _ANYWHERE

    def fits(key: tuple[str, str, int, int]) -> bool:
        alike = key[0] == code or (code == "FO101" and key[0] in ("FO102", "FO105"))
        return alike and key[1] == path and (key[2] == line or (wide and begins <= key[2] <= ends))

    same = [key for key in found if fits(key)]
    if same:
        key = min(same, key=lambda one: abs(one[2] - line))
        one = found[key]
        if "trace" not in one.seen:
            worse = min(one.severity, severity or one.severity, key=SEVERITIES.index)
            found[key] = replace(one, message=f"{one.message} {message}", seen="source and trace", severity=worse)
        return
    if probe.file.is_excused(code, line):
        return
    rule = RULES[code]
    text = probe.file.lines[line - 1] if line <= len(probe.file.lines) else ""
    column = len(text) - len(text.lstrip()) + 1
    told = (message, severity or rule.severity(backend), rule.why, rule.rewrite, probe.root.name, "trace")
    found[code, path, line, column] = Finding(code, str(probe.file.path), line, column, *told)
