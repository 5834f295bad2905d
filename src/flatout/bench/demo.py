"""`flatout demo`: the reference workload with stock Keras and with flatout, side by side, and a picture of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from . import bench_device as backend
from . import fashion_mnist, picture
from .workloads import WORKLOADS

if TYPE_CHECKING:
    from .comparison import Run


def main(argv: list[str] | None = None) -> int:
    """Run `flatout demo`; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="flatout demo",
        description="Train Fashion-MNIST, 784-128-10, with stock Keras and with flatout from the same seed.",
        epilog="The data come from FLATOUT_FASHION_MNIST, Keras' cache, Debian's dataset-fashion-mnist, Keras' "
        "download, or a generated stand-in that says so. KERAS_BACKEND chooses the backend.",
    )
    parser.add_argument("--epochs", type=int, default=5, help="default: 5")
    parser.add_argument("--rows", type=int, help="train on the first ROWS images (default: all 60000)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    arguments = parser.parse_args(argv)
    if arguments.epochs < 2:
        parser.error(f"--epochs must be at least 2: the first one also compiles; received {arguments.epochs}")
    _run(arguments)
    return 0


def _run(arguments: argparse.Namespace) -> None:
    # Narrower than the table, rich would break its numbers.
    console = Console(width=max(112, Console().width), highlight=False)
    chosen = backend.choose()
    on = backend.device()
    data = fashion_mnist.load()
    x, y = data.x_train[: arguments.rows], data.y_train[: arguments.rows]
    console.print(f"784-128-10, Adam, batch 32, {len(x)} images, {arguments.epochs} epochs: {chosen} on {on.name}")
    console.print(f"data: {data.origin}", style="bold yellow" if data.is_stand_in else "")

    from .comparison import SIDES, largest_difference, train

    runs = []
    for side, engine in SIDES.items():
        with console.status(f"{side} ..."):
            validation = (data.x_test, data.y_test)
            runs.append(train(engine, WORKLOADS["seed"], x, y, arguments.epochs, validation_data=validation))
    stock, flatout = runs
    difference = largest_difference(stock.history, flatout.history)
    weights = max(float(np.max(np.abs(a - b))) for a, b in zip(stock.weights, flatout.weights, strict=True))
    console.print(_table(stock, flatout))
    console.print(_verdict(stock, flatout, difference, weights))
    for why in flatout.report.reasons:
        console.print(f"flatout says: {why}", style="yellow")
    setting = f"784-128-10, Adam, batch 32, {len(x)} images. Keras on {chosen}, {on.name}."
    story = picture.Story(stock, flatout, difference, setting, data.origin, data.is_stand_in)
    for file in picture.write(story, arguments.out):
        console.print(f"wrote {file}")


def _table(stock: Run, flatout: Run) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("epoch", justify="right", no_wrap=True)
    for heading in ("loss", "accuracy", "val loss", "val acc.", "seconds"):
        table.add_column(f"{heading}\nstock", justify="right", no_wrap=True)
        table.add_column("\nflatout", justify="right", style="cyan", no_wrap=True)
    names = ("loss", "accuracy", "val_loss", "val_accuracy")
    for epoch in range(len(stock.epoch_seconds)):
        cells = [f"{run.history[name][epoch]:.5f}" for name in names for run in (stock, flatout)]
        times = [f"{run.epoch_seconds[epoch]:.2f}" for run in (stock, flatout)]
        table.add_row(str(epoch + 1), *cells, *times)
    return table


def _verdict(stock: Run, flatout: Run, difference: float, weights: float) -> str:
    if difference == 0 and weights == 0:
        same = "Every number of the two histories and every weight is equal, bit for bit."
    else:
        same = f"Largest difference: {difference:.2g} in the histories, {weights:.2g} in the weights."
    later = [float(np.median(run.epoch_seconds[1:])) for run in (stock, flatout)]
    return (
        f"{same}\n"
        f"fit took {stock.seconds:.2f} s with stock Keras and {flatout.seconds:.2f} s with flatout, compilation "
        f"included: {stock.seconds / flatout.seconds:.1f} times faster.\n"
        f"An epoch after the first: {later[0]:.2f} s and {later[1]:.2f} s, {later[0] / later[1]:.1f} times faster."
    )
