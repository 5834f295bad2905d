"""Keras scripts, plain and under flatout, on every backend: do they come to the same, and how long do they take?

    python benchmarks/script_runner FOLDER [SCRIPT...] [--backends jax,torch] [--second] [--json scripts.json]

Each script runs as `python script.py` and as `python -m flatout script.py`, in an empty folder and with empty caches; a
script that names its backend runs on that one only. Compared are the `History` of each fit, which is recorded without
touching the script, the exit code and what a terminal shows at the end, durations apart. Where they differ, plain
Python runs again: a script that differs from itself is not repeatable, and says nothing about flatout. On jax and
tensorflow everything must be equal to the last bit, on torch and on GPUs, which add up in no fixed order, up to
`--tolerance`. Ends with 1 if a script differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recorded_run import RecordedRun, named_backend, run_recorded
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from sameness import difference

BACKENDS = ("jax", "tensorflow", "torch")
PLAIN: tuple[str, ...] = ()
FLATOUT = ("-m", "flatout")
# More than this many times plain Python's seconds is slower.
SLOWER = 1.05
COLOURS = {"equal": "green", "differs": "bold red", "not repeatable": "yellow", "fails": "red"}


@dataclass(frozen=True)
class Comparison:
    """A script on a backend: the verdict, what differed if anything, and seconds of whole runs and of their fits."""

    script: str
    backend: str
    verdict: str
    difference: str
    exit_code: int | None
    fits: int
    plain_seconds: float
    flatout_seconds: float
    second_seconds: float | None
    plain_fit_seconds: float
    flatout_fit_seconds: float
    second_fit_seconds: float | None
    flatout_said: str


def main() -> int:
    arguments = _arguments()
    scripts = [found for path in arguments.paths for found in _scripts(path)]
    comparisons: list[Comparison] = []
    with Live(_table([], arguments.second), refresh_per_second=1, console=_console()) as live:
        for backend in arguments.backends:
            # The first import reads the files of the backend from disk, for all that come after it.
            environment = {"KERAS_BACKEND": backend}
            subprocess.run([sys.executable, "-c", f"import os; os.environ |= {environment}; import keras"], check=False)
            for script in scripts:
                if named_backend(script) in (None, backend):
                    comparisons.append(_compare(script, backend, arguments))
                    live.update(_table(comparisons, arguments.second))
                    if arguments.json:
                        arguments.json.write_text(json.dumps([*map(dataclasses.asdict, comparisons)], indent=1) + "\n")
    print()
    differing = [one for one in comparisons if one.verdict == "differs"]
    for one in differing:
        print(f"{one.script} on {one.backend} differs: plain and flatout have {one.difference}")
    print(_summary(comparisons))
    return 1 if differing else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="folders of scripts, or scripts")
    parser.add_argument("--backends", type=_backends, default=BACKENDS, help="with commas between (default: all three)")
    parser.add_argument("--second", action="store_true", help="time flatout twice: with empty caches, and with its own")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="relative, on torch and on GPUs (default: 1e-3)")
    parser.add_argument("--repeats", type=int, default=1, help="runs of what looks slower, for medians (default: 1)")
    parser.add_argument("--limit", type=float, default=600, help="seconds that a run may take (default: 600)")
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    return parser.parse_args()


def _backends(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - set(BACKENDS):
        raise argparse.ArgumentTypeError(f"Received: {', '.join(unknown)}. Expected some of {', '.join(BACKENDS)}.")
    return names


def _scripts(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise SystemExit(f"There is no {path}. Give a folder of Keras scripts, or scripts.")
    found = [path] if path.is_file() else sorted(path.glob("*.py"))
    if not found:
        raise SystemExit(f"No scripts in {path}. Give a folder with .py files.")
    yield from found


def _compare(script: Path, backend: str, arguments: argparse.Namespace) -> Comparison:
    tolerance = arguments.tolerance if backend == "torch" or shutil.which("nvidia-smi") else 0.0
    with tempfile.TemporaryDirectory(prefix="script-cache-") as cache:

        def run(way: tuple[str, ...]) -> RecordedRun:
            return run_recorded(script, backend, way, Path(cache), arguments.limit)

        plain, fast = run(PLAIN), run(FLATOUT)
        second = run(FLATOUT) if arguments.second else None
        plains, fasts = [plain], [fast]
        # Seconds of one run say little on a machine that does other things: what looks slower is run again.
        while len(plains) < arguments.repeats and _median(fasts) > SLOWER * _median(plains):
            shutil.rmtree(cache)
            Path(cache).mkdir()
            plains.append(run(PLAIN))
            fasts.append(run(FLATOUT))
        found = difference(plain, fast, tolerance) or (second and difference(plain, second, tolerance)) or ""
        verdict = "equal" if plain.exit_code == 0 else "fails"
        if found:
            # What depends on the speed of threads may be the same twice.
            again = (difference(plain, run(PLAIN), tolerance) for _ in range(3))
            verdict = "not repeatable" if any(again) else "differs"
    return Comparison(
        script.name,
        backend,
        verdict,
        found or ("" if plain.exit_code == 0 else plain.error[-300:]),
        plain.exit_code,
        len(plain.fits),
        _median(plains),
        _median(fasts),
        second.seconds if second else None,
        statistics.median(one.fit_seconds for one in plains),
        statistics.median(one.fit_seconds for one in fasts),
        second.fit_seconds if second else None,
        fast.closing_line,
    )


def _median(runs: list[RecordedRun]) -> float:
    return statistics.median(one.seconds for one in runs)


def _table(comparisons: list[Comparison], with_second: bool) -> Table:
    table = Table("script", "backend", "verdict", box=box.SIMPLE_HEAD, title="seconds of scripts and of fits")
    runs = ("plain", "flatout", "second") if with_second else ("plain", "flatout")
    for name in ("fits", *runs, *(f"{run}, fits" for run in runs), "plain : flatout"):
        table.add_column(name, justify="right")
    table.add_column("flatout says")
    for one in comparisons:
        times = [getattr(one, f"{run}_{what}") for what in ("seconds", "fit_seconds") for run in runs]
        table.add_row(
            one.script,
            one.backend,
            f"[{COLOURS[one.verdict]}]{one.verdict}",
            str(one.fits),
            *(f"{time:.1f}" for time in times),
            f"{one.plain_seconds / one.flatout_seconds:.2f}",
            one.flatout_said,
        )
    return table


def _summary(comparisons: list[Comparison]) -> str:
    counts = {verdict: sum(one.verdict == verdict for one in comparisons) for verdict in COLOURS}
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count or verdict == "equal")
    plain, fast = (sum(getattr(one, f"{side}_seconds") for one in comparisons) for side in ("plain", "flatout"))
    slower = sum(one.flatout_seconds > SLOWER * one.plain_seconds for one in comparisons)
    told += f"; all together {plain:.0f} s plain, {fast:.0f} s under flatout; {slower} slower than {SLOWER} of plain"
    gains = [one.plain_fit_seconds / one.second_fit_seconds for one in comparisons if one.second_fit_seconds]
    return f"{told}; fits of second runs {statistics.median(gains):.1f} times faster in the median" if gains else told


def _console() -> Console:
    console = Console()
    # In a file or a pipe lines may be as long as they are.
    return console if console.is_terminal else Console(width=180)


if __name__ == "__main__":
    sys.exit(main())
