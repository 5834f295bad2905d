"""Is the doctor right? Scripts with a known fault, diagnosed, then mended by hand: did the gain come as predicted?

    python benchmarks/doctor_gains.py [--backends jax tensorflow torch] [--scripts slow_generator ...] [--repeats 3]

For each script of examples/doctor and each backend, `flatout doctor` diagnoses the script. Its verdict and the line it
names are compared with what was planted. Then the script and its version in examples/doctor/fixed run with stock
Keras, in turns, each in a process of its own, and the ratio of their times is compared with the gain that the doctor
predicted for that change. The times are those of an epoch after the first, for a change that saves compiling those of
the whole fit. A batch size is tried as the doctor named it. Exit status 1: too many verdicts are wrong, or a gain is
off by more than a factor of 1.5. Nothing is written outside temporary folders.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
PLANTED = ROOT / "examples" / "doctor"
BACKENDS = ("jax", "tensorflow", "torch")
# Verdicts that have to be right, of all.
RIGHT = 16 / 18
NEAR, FAR = 1.15, 1.5
# Where there is nothing to mend, no change may promise as much.
NO_GAIN = 1.2

Finding = dict[str, Any]


@dataclass(frozen=True)
class Expected:
    """What the doctor should say of a script.

    Attributes:
        kinds: The verdicts that are right.
        kinds_torch: The same on torch, where they differ.
        codes: Of the finding at the planted line; empty if any code is right.
        anywhere: Any line of the planted statement is right, not its first alone.
        has_line: Whether the fault is in a line at all.
        compiles: Where the backend compiles, the change saves that, and the whole fit is compared.
        backends: Those that can run it.
        is_honest: There is nothing to change.
    """

    kinds: tuple[str, ...]
    kinds_torch: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    anywhere: bool = False
    has_line: bool = True
    compiles: bool = False
    backends: tuple[str, ...] = BACKENDS
    is_honest: bool = False

    def right_kinds(self, backend: str) -> tuple[str, ...]:
        return self.kinds_torch if self.kinds_torch and backend == "torch" else self.kinds


EXPECTED = {
    "slow_generator": Expected(("input-bound",), anywhere=True),
    "loop_in_loss": Expected(
        ("compile-bound", "loss-bound"), ("loss-bound", "host-bound"), codes=("FO101",), compiles=True
    ),
    "pandas_in_loss": Expected(("loss-bound", "host-bound"), codes=("FO401", "FO201", "FO205"), backends=("torch",)),
    "slow_callback": Expected(("callback-bound",), anywhere=True),
    "tiny_model": Expected(("launch-bound", "host-bound"), has_line=False),
    "honest_convnet": Expected(("compute-bound",), has_line=False, is_honest=True),
}


@dataclass(frozen=True)
class Result:
    """What came of a script on a backend; a gain is None where there is none to predict, NaN where it is lacking."""

    script: str
    backend: str
    kind: str
    is_right: bool
    remark: str
    predicted: float | None = None
    actual: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.predicted is None or self.actual is None else self.predicted / self.actual

    def is_within(self, factor: float) -> bool:
        return self.ratio is not None and 1 / factor <= self.ratio <= factor


class Failed(RuntimeError):
    """A process ended with an error, or took too long."""


def python(arguments: list[str], backend: str, timeout: float) -> str:
    """What Python prints, in an empty folder, without anything that earlier processes have kept."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "KERAS_BACKEND": backend,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "XDG_CACHE_HOME": folder,
        }
        try:
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"took more than {timeout:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise Failed(f"exit status {done.returncode}: {last}")
    return done.stdout


def diagnose(script: Path, backend: str, timeout: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "diagnosis.json"
        python(["-m", "flatout", "doctor", "--json", str(report), str(script)], backend, timeout)
        if not report.is_file():
            raise Failed("the doctor wrote no report")
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def planted_lines(script: Path, anywhere: bool) -> range:
    """The line with the marker, or all lines of the statement that begins there."""
    source = script.read_text(encoding="utf-8")
    (first,) = [number for number, line in enumerate(source.splitlines(), 1) if "# planted" in line]
    if not anywhere:
        return range(first, first + 1)
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and node.lineno == first]
    return range(first, max(node.end_lineno or first for node in statements) + 1)


def gain_of(finding: Finding) -> float:
    return float(finding["gain"]["times"]) if finding["gain"] else math.nan


def is_by_flatout(finding: Finding) -> bool:
    return bool(finding["is_automatic"]) or "python -m flatout" in finding["after"]


def at_planted_line(finding: Finding, script: Path, expected: Expected) -> bool:
    is_there = Path(finding["path"]).name == script.name and finding["line"] in planted_lines(script, expected.anywhere)
    return is_there and (not expected.codes or finding["code"] in expected.codes)


def batch_size_named(finding: Finding) -> str | None:
    named = re.search(r"batch_size=(\d+)", finding["after"])
    return named and named[1]


def best(found: list[Finding]) -> Finding | None:
    """The finding with the largest gain; one whose gain is not known, if there is no other."""
    return max(found, key=lambda one: -1.0 if math.isnan(gain_of(one)) else gain_of(one), default=None)


def printed_number(name: str, printed: str) -> float:
    found = re.search(rf"^{name} ([\d.]+)$", printed, re.MULTILINE)
    if not found:
        raise Failed(f"printed no `{name}`")
    return float(found[1])


def time_of(printed: str, whole: bool) -> float:
    """Seconds of the whole fit, or of an epoch after the first."""
    if whole:
        return printed_number("seconds", printed)
    return printed_number("steady", printed) * printed_number("steps", printed)


def actual_gain(before: list[str], after: list[str], backend: str, whole: bool, arguments: argparse.Namespace) -> float:
    """How many times faster the second command is: medians of several runs, in turns."""
    seconds: dict[int, list[float]] = {0: [], 1: []}
    for repeat in range(arguments.repeats):
        for side in (0, 1) if repeat % 2 == 0 else (1, 0):
            printed = python((before, after)[side], backend, arguments.timeout)
            seconds[side].append(time_of(printed, whole))
    print(f"    seconds before {_listed(seconds[0])}, after {_listed(seconds[1])}", flush=True)
    return statistics.median(seconds[0]) / statistics.median(seconds[1])


def _listed(seconds: list[float]) -> str:
    return " ".join(f"{one:.3g}" for one in seconds)


def judge(name: str, backend: str, arguments: argparse.Namespace) -> Result:
    """One script on one backend."""
    expected, script = EXPECTED[name], PLANTED / f"{name}.py"
    try:
        diagnosis = diagnose(script, backend, arguments.timeout)
    except Failed as failed:
        return Result(name, backend, "-", False, str(failed), None if expected.is_honest else math.nan, math.nan)
    kind, found = diagnosis["kind"], diagnosis["findings"]
    print(f"    {kind}: " + ", ".join(f"{one['code']}:{one['line']} {gain_of(one):.2f}" for one in found), flush=True)
    remarks = [] if kind in expected.right_kinds(backend) else ["another verdict"]
    if expected.is_honest:
        loud = [one for one in found if gain_of(one) >= NO_GAIN and not is_by_flatout(one)]
        remarks += [f"{one['code']} promises {gain_of(one):.2f}" for one in loud]
        return Result(name, backend, kind, not remarks, ", ".join(remarks))
    if expected.has_line:
        finding = best([one for one in found if at_planted_line(one, script, expected)])
        remarks += [] if finding else ["no finding at the line"]
    else:
        finding = best([one for one in found if batch_size_named(one)]) or best(
            [one for one in found if is_by_flatout(one)]
        )
    is_right = not remarks
    if finding is None or math.isnan(gain_of(finding)):
        return Result(name, backend, kind, is_right, ", ".join([*remarks, "no gain predicted"]), math.nan, math.nan)

    before, after = [str(script)], [str(PLANTED / "fixed" / script.name)]
    if not expected.has_line:
        size = batch_size_named(finding)
        after = [*after, "--batch-size", size] if size else ["-m", "flatout", str(script)]
        remarks.append(f"batch_size={size}" if size else "python -m flatout")
    try:
        actual = actual_gain(before, after, backend, expected.compiles and backend != "torch", arguments)
    except Failed as failed:
        return Result(name, backend, kind, is_right, ", ".join([*remarks, str(failed)]), gain_of(finding), math.nan)
    return Result(name, backend, kind, is_right, ", ".join(remarks), gain_of(finding), actual)


def show(results: list[Result], absent: list[tuple[str, str]]) -> bool:
    """The table and the summary; returns whether the doctor passed."""
    table = Table("script", "backend", "verdict", "right", "predicted", "actual", "pred./actual", "remark")
    for one in results:
        numbers = ("" if value is None else f"{value:.2f}" for value in (one.predicted, one.actual, one.ratio))
        table.add_row(one.script, one.backend, one.kind, "yes" if one.is_right else "NO", *numbers, one.remark)
    for script, backend in absent:
        table.add_row(script, backend, "not applicable", "", "", "", "", f"{backend} cannot run it")
    Console(width=None if sys.stdout.isatty() else 140).print(table)

    predicted = [one for one in results if one.predicted is not None]
    right, total, gains = sum(one.is_right for one in results), len(results), len(predicted)
    near, within = (sum(one.is_within(factor) for one in predicted) for factor in (NEAR, FAR))
    needed = math.ceil(total * RIGHT)
    left_out = f"; {len(absent)} not applicable" if absent else ""
    print(f"right verdict and line: {right} of {total} (needed: {needed}{left_out})")
    print(f"predicted gain within 15 %: {near} of {gains}, within a factor of 1.5: {within} of {gains} (needed: all)")
    return right >= needed and within == gains


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--scripts", nargs="+", choices=EXPECTED, default=list(EXPECTED), metavar="SCRIPT")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each version, in turns (default: 3)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one process (default: 600)")
    parser.add_argument("--threads", type=int, help="of torch, everywhere: two wait for each other on busy cores")
    arguments = parser.parse_args()
    if arguments.threads:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    results: list[Result] = []
    absent: list[tuple[str, str]] = []
    for name in arguments.scripts:
        for backend in arguments.backends:
            if backend not in EXPECTED[name].backends:
                absent.append((name, backend))
                continue
            print(f"  {name} on {backend}", flush=True)
            results.append(judge(name, backend, arguments))
    return 0 if show(results, absent) else 1


if __name__ == "__main__":
    sys.exit(main())
