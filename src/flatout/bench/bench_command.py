"""`flatout bench`: the arguments, and one process for each backend where several are asked for."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from flatout.base.errors import FlatoutError
from flatout.base.options import PRECISIONS

from . import bench_device as backend
from .workloads import WORKLOADS

# Not a workload beside the others, but several engines beside each other; it goes alone.
_NATIVE = "native"

EPILOGUE = """\
workloads:
{}

examples:
  flatout bench                                  all six, on the backend that Keras is set to
  flatout bench seed --backends jax,torch        the reference workload on two backends
  flatout bench seed --against scan              on jax, a plain lax.scan over train_step beside it
  flatout bench seed resnet20 --json bench.json
  flatout bench native                           the seed model under stock Keras, flatout's engine and native kernels

A line shows the median time of a training step after the first epoch, with stock Keras and with flatout, trained in
turns in one process from the same seed. They are the first epochs of a training of ten full ones (`--planned`), so
that flatout decides as it would there. FLATOUT_FORCE=1 also accelerates what flatout would leave to stock Keras.
"""


def main(argv: list[str] | None = None) -> int:
    """Run `flatout bench`; returns the exit status."""
    arguments = _parser().parse_args(argv)
    return _in_processes(arguments) if arguments.backends else _here(arguments)


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<12} {one.title}, batch {one.batch_size}" for name, one in WORKLOADS.items())
    parser = argparse.ArgumentParser(
        prog="flatout bench",
        description="Train with stock Keras and with flatout in one run, and compare.",
        epilog=EPILOGUE.format(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="workloads; all if none is named")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the results to FILE")
    parser.add_argument("--backends", metavar="LIST", help="such as jax,tensorflow,torch: each in its own process")
    parser.add_argument("--against", choices=["scan"], help="also measure a plain lax.scan (jax only)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="exact", help="of flatout's side: fast may round otherwise"
    )
    parser.add_argument("--steps", type=_positive, help="steps of an epoch (default: by workload and device)")
    parser.add_argument("--epochs", type=_positive, default=3, help="epochs, the first not counted (default: 3)")
    parser.add_argument(
        "--planned",
        type=_positive,
        default=10,
        help="full epochs of the training of which these are the first (default: 10)",
    )
    parser.add_argument("--repeats", type=_positive, default=3, help="trainings of each side (default: 3)")
    return parser


# Of a comparison.
_OPTIONS = ("steps", "epochs", "planned", "repeats", "precision")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, received {value}")
    return value


def _chosen(arguments: argparse.Namespace) -> list[str]:
    for name in arguments.names:
        if name not in WORKLOADS and arguments.names != [_NATIVE]:
            raise FlatoutError(f"Unknown workload. Received: {name!r}. Expected one of {', '.join(WORKLOADS)}.")
    if arguments.epochs < 2:
        raise FlatoutError(f"Too few epochs. Received: {arguments.epochs}. Expected at least 2: the first warms up.")
    return arguments.names or list(WORKLOADS)


def _here(arguments: argparse.Namespace) -> int:
    names = _chosen(arguments)
    chosen = backend.choose()
    if arguments.against == "scan" and chosen != "jax":
        raise FlatoutError(f"--against scan needs the jax backend. Received: {chosen}. Set KERAS_BACKEND=jax.")

    # Narrower than the table, rich would break its numbers.
    console = Console(width=max(130, Console().width))
    console.print(f"{chosen} on {backend.device().name}", highlight=False)
    if names == [_NATIVE]:
        from . import native_bench as native

        with console.status("native ..."):
            lines = native.measure(arguments.steps, arguments.epochs, arguments.repeats)
        native.print_lines(console, lines)
        _write(arguments.json, native.as_json(lines, arguments.steps))
        return 0

    from .comparison import as_json, compare, print_table

    comparisons = []
    for name in names:
        with console.status(f"{name} ..."):
            one = compare(WORKLOADS[name], **{option: getattr(arguments, option) for option in _OPTIONS})
            if arguments.against == "scan":
                from .yardsticks import lax_scan

                time = lax_scan(WORKLOADS[name], one.steps, one.epochs, one.repeats)
                one = dataclasses.replace(one, scan_us_per_step=time)
        comparisons.append(one)
        _write(arguments.json, as_json(comparisons))
        console.print(f"{name}: {one.ratio:.2f} times faster", highlight=False)
    print_table(console, comparisons)
    return 0 if all(one.agrees for one in comparisons) else 1


def _in_processes(arguments: argparse.Namespace) -> int:
    """A process can hold one Keras backend, so each gets its own."""
    names = _chosen(arguments)
    backends = arguments.backends.split(",")
    if unknown := [name for name in backends if name not in backend.BACKENDS]:
        raise FlatoutError(
            f"Unknown backend. Received: {', '.join(unknown)}. Expected one of {', '.join(backend.BACKENDS)}."
        )
    merged: dict[str, Any] = {}
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in backends:
            file = Path(folder) / f"{name}.json"
            command = [sys.executable, "-m", "flatout", "bench", *names, "--json", str(file)]
            for option in (*_OPTIONS, *(["against"] if name == "jax" else [])):
                value = getattr(arguments, option)
                command += [f"--{option}", str(value)] if value else []
            run = subprocess.run(command, env={**os.environ, "KERAS_BACKEND": name}, check=False)
            status = max(status, run.returncode)
            if file.exists():
                written = json.loads(file.read_text())
                merged = {**written, "results": [*merged.get("results", []), *written["results"]]}
    if merged:
        _write(arguments.json, merged)
    return status


def _write(file: Path | None, results: dict[str, Any]) -> None:
    if file is not None:
        file.write_text(json.dumps(results, indent=2) + "\n")
