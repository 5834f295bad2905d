"""The demo's picture: one SVG, and one HTML page around it that needs no network.

Left, the loss after each epoch: the two trainings lie on each other. Right, the same by the clock, above bars of
the time that each epoch took, on one time axis.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flatout.base.drawing import PAGE_STYLE, STYLE, curve, label, range_axis, scale

if TYPE_CHECKING:
    from .comparison import Run

WIDTH, HEIGHT = 1000, 590
_LOSSES = {"loss": "training", "val_loss": "validation"}
_TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e9)


@dataclass(frozen=True)
class Story:
    """What the picture tells."""

    stock: Run
    flatout: Run
    difference: float
    setting: str
    origin: str
    is_stand_in: bool


def write(story: Story, folder: Path) -> list[Path]:
    """Write demo.svg and demo.html; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "demo.svg", folder / "demo.html"]
    for file, text in zip(files, (svg(story, standalone=True), page(story)), strict=True):
        file.write_text(text, encoding="utf-8")
    return files


def page(story: Story) -> str:
    """The picture and its numbers as one HTML page."""
    sides = {"stock": story.stock, "flatout": story.flatout}
    columns = [[f"{loss:.6f}" for loss in run.history[name]] for name in _LOSSES for run in sides.values()]
    columns += [[f"{end:.2f} s" for end in run.epoch_ends] for run in sides.values()]
    rows = "".join(
        f"<tr><td>{epoch}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for epoch, cells in enumerate(zip(*columns, strict=True), 1)
    )
    heads = "".join(f"<th>{name}<br>{side}</th>" for name in ("loss", "val loss", "ended after") for side in sides)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>flatout demo</title>'
        f'<meta name="viewport" content="width=device-width"><style>{PAGE_STYLE}</style><main>{svg(story)}'
        f"<table><thead><tr><th>epoch</th>{heads}</tr></thead><tbody>{rows}</tbody></table></main></html>\n"
    )


def svg(story: Story, standalone: bool = False) -> str:
    """The picture alone; `standalone` adds what a file of its own needs."""
    namespace = 'xmlns="http://www.w3.org/2000/svg" ' if standalone else ""
    paper = f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>' if standalone else ""
    same = "The same numbers" if story.difference < 1e-3 else "Training"
    title = f"{same}, {story.stock.seconds / story.flatout.seconds:.1f} times sooner"
    difference = f"Largest difference between any two numbers of the two histories: {story.difference:.1g}."
    if story.difference == 0:
        difference = "Every loss and accuracy of the two histories is equal, bit for bit."
    parts = [
        f'<svg {namespace}class="fo" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">',
        f"<style>{STYLE}</style>{paper}",
        label(40, 52, title, "title"),
        label(40, 79, story.setting, "quiet"),
        label(40, 99, difference, "quiet"),
        label(960, 99, f"Data: {story.origin}.", ("warn" if story.is_stand_in else "quiet") + " small end"),
        *_by_epoch(story),
        *_by_clock(story),
    ]
    return "\n".join([*parts, "</svg>"])


def _by_epoch(story: Story) -> list[str]:
    left, right, top, bottom = 40, 350, 178, 520
    stock, flatout = ([run.history[name] for name in _LOSSES] for run in (story.stock, story.flatout))
    epochs = len(stock[0])
    y, axis = range_axis([loss for losses in (*stock, *flatout) for loss in losses], left, top, bottom)
    x = scale(1, max(epochs, 2), left + 44, right - 20)
    parts = [
        label(left, 140, "Loss after each epoch", "head"),
        f'<path class="wide" d="M{left + 5} 155H{left + 31}"/>',
        label(left + 43, 160, "stock Keras", "small stocktext"),
        f'<path class="thin" d="M{left + 125} 155H{left + 156}"/>',
        label(left + 163, 160, "flatout", "small flattext"),
        *axis,
        *(label(x(epoch), bottom + 22, str(epoch), "small quiet mid") for epoch in range(1, epochs + 1)),
        label((x(1) + x(epochs)) / 2, bottom + 42, "epoch", "small quiet mid"),
    ]
    for side, kind, dot in ((stock, "wide", None), (flatout, "thin", "dot")):
        for losses in side:
            parts += curve(kind, [(x(epoch), y(loss)) for epoch, loss in enumerate(losses, 1)], dot)
    place = -math.inf
    for last, name in sorted(zip((losses[-1] for losses in flatout), _LOSSES.values(), strict=True), reverse=True):
        place = max(y(last), place + 17)
        parts.append(label(right - 6, place + 4, f"{name} {last:.3f}", "small"))
    return parts


def _by_clock(story: Story) -> list[str]:
    """The validation loss above bars of the time that each epoch took, on one axis."""
    longest = max(story.stock.epoch_ends[-1], story.flatout.epoch_ends[-1])
    x = scale(0, longest, 564, 905)
    losses = [*story.stock.history["val_loss"], *story.flatout.history["val_loss"]]
    y, axis = range_axis(losses, left=520, top=178, bottom=390)
    parts = [label(520, 140, "Validation loss by the clock", "head"), *axis]
    for run, name, kind, line, dot, top in (
        (story.stock, "stock Keras", "stock", "stockline", "stockdot", 428),
        (story.flatout, "flatout", "flat", "thin", "dot", 472),
    ):
        points = [(x(end), y(loss)) for end, loss in zip(run.epoch_ends, run.history["val_loss"], strict=True)]
        parts += curve(line, points, dot)
        parts.append(label(points[-1][0], points[-1][1] + 21, name, f"small mid {kind}text"))
        for epoch, (begin, end) in enumerate(itertools.pairwise([0.0, *run.epoch_ends]), 1):
            width = max(x(end) - x(begin) - 1.5, 0.5)
            parts.append(f'<rect class="{kind}bar" x="{x(begin):.1f}" y="{top}" width="{width:.1f}" height="22"/>')
            if width > 14:
                parts.append(label(x(begin) + width / 2, top + 15.5, str(epoch), f"small mid on{kind}"))
        parts.append(label(points[-1][0] + 7, top + 16, f"{run.seconds:.2f} s", f"{kind}text"))
    parts.append(f'<path class="axis" d="M{x(0):.1f} 506H{x(longest):.1f}"/>')
    step = next(step for step in _TICKS if longest / step <= 7)
    for tick in range(int(longest / step) + 1):
        parts.append(f'<path class="axis" d="M{x(tick * step):.1f} 506v5"/>')
        parts.append(label(x(tick * step), 526, f"{tick * step:g}", "small quiet mid"))
    notes = ("seconds since fit() was called", "in the bars: the epochs; the first one also compiles")
    return parts + [label(564, 548 + 18 * row, note, "small quiet") for row, note in enumerate(notes)]
