"""A comparison as lines for the terminal and as JSON."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .comparison import Comparison


def print_table(console: Console, comparisons: Sequence[Comparison]) -> None:
    """Print one line for each comparison, and below it why something was not accelerated."""
    with_scan = any(one.scan_us_per_step is not None for one in comparisons)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", no_wrap=True)
    table.add_column("backend")
    for heading in ("stock\nus/step", "flatout\nus/step", *(["scan\nus/step"] if with_scan else []), "times\nfaster"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("1st epoch\nstock", "1st epoch\nflatout", "end loss\nstock", "end loss\nflatout"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("ran on")
    for one in comparisons:
        scan = [_microseconds(one.scan_us_per_step) if one.scan_us_per_step else ""] if with_scan else []
        colour = "green" if one.ratio >= 1.05 else "red" if one.ratio < 0.95 else "default"
        table.add_row(
            one.workload,
            one.backend,
            _microseconds(one.stock.us_per_step),
            _microseconds(one.flatout.us_per_step),
            *scan,
            f"[{colour}]{one.ratio:.2f}[/]",
            f"{one.stock.first_epoch_seconds:.2f} s",
            f"{one.flatout.first_epoch_seconds:.2f} s",
            f"{one.stock.loss:.5f}",
            f"{one.flatout.loss:.5f}" if one.agrees else f"[red]{one.flatout.loss:.5f}[/]",
            one.engine if one.accelerated else "stock Keras: " + ", ".join(why.code for why in one.reasons),
        )
    console.print(table)
    for one in comparisons:
        for why in () if one.accelerated else one.reasons:
            console.print(f"{one.workload} ran on stock Keras. {why.message}", highlight=False)
        if not one.agrees:
            console.print(
                f"[red]{one.workload}: the histories differ by up to {one.largest_difference:.2g}[/]", highlight=False
            )


def as_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """What `--json` writes: versions, machine and one entry for each comparison."""
    packages = ("flatout", "keras", "jax", "jaxlib", "tensorflow", "torch", "numpy")
    return {
        "format": 1,
        "versions": {name: version for name in packages if (version := _version(name))},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "results": [dataclasses.asdict(one) for one in comparisons],
    }


def _microseconds(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
