"""The demo's picture: one SVG, and one HTML page around it that needs no network.

Left, the loss after each epoch: the two trainings lie on each other. Right, the same by the clock, above bars of
the time that each epoch took, on one time axis.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .comparison import Run

STYLE = """
.fo{--paper:#fffefb;--ink:#22252a;--quiet:#7b7f86;--hair:#d9d6cf;--stock:#c3bdb1;--stockink:#857d6f;--flat:#c2410c}
@media (prefers-color-scheme:dark){.fo{--paper:#15171a;--ink:#ece9e2;--quiet:#979ba3;--hair:#363a40;
--stock:#57534b;--stockink:#a69f92;--flat:#ff8f5e}}
.fo text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI","Helvetica Neue",Arial,sans-serif;font-size:14px;
fill:var(--ink);font-variant-numeric:tabular-nums}
.fo .paper{fill:var(--paper)} .fo .title{font-size:27px;font-weight:650;letter-spacing:-.3px}
.fo .head{font-size:15px;font-weight:600} .fo .quiet{fill:var(--quiet)} .fo .small{font-size:12.5px}
.fo .warn{fill:var(--flat);font-weight:600} .fo .axis{stroke:var(--hair);stroke-width:1;fill:none}
.fo .wide{stroke:var(--stock);stroke-width:9;fill:none;stroke-linejoin:round;stroke-linecap:round}
.fo .thin{stroke:var(--flat);stroke-width:2;fill:none;stroke-linejoin:round} .fo .dot{fill:var(--flat)}
.fo .stockline{stroke:var(--stock);stroke-width:3;fill:none;stroke-linejoin:round} .fo .stockdot{fill:var(--stock)}
.fo .stockbar{fill:var(--stock)} .fo .flatbar{fill:var(--flat)} .fo .stocktext{fill:var(--stockink)}
.fo .flattext{fill:var(--flat)} .fo .onstock{fill:var(--ink)} .fo .onflat{fill:var(--paper)}
.fo .end{text-anchor:end} .fo .mid{text-anchor:middle}
"""
PAGE_STYLE = """
body{margin:0;background:#fffefb;color:#22252a;font:15px/1.5 ui-sans-serif,system-ui,"Segoe UI",Arial,sans-serif}
main{max-width:1040px;margin:0 auto;padding:24px 20px 56px} svg{width:100%;height:auto;display:block}
table{border-collapse:collapse;margin:8px 0 0 40px;font-variant-numeric:tabular-nums}
th,td{padding:3px 16px 3px 0;text-align:right;font-weight:400} thead th{color:#7b7f86;border-bottom:1px solid #d9d6cf}
@media (prefers-color-scheme:dark){body{background:#15171a;color:#ece9e2} thead th{color:#979ba3;border-color:#363a40}}
"""
WIDTH, HEIGHT = 1000, 590
_LOSSES = {"loss": "training", "val_loss": "validation"}
_TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e9)
Scale = Callable[[float], float]


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
        _text(40, 52, title, "title"),
        _text(40, 79, story.setting, "quiet"),
        _text(40, 99, difference, "quiet"),
        _text(960, 99, f"Data: {story.origin}.", ("warn" if story.is_stand_in else "quiet") + " small end"),
        *_by_epoch(story),
        *_by_clock(story),
    ]
    return "\n".join([*parts, "</svg>"])


def _by_epoch(story: Story) -> list[str]:
    left, right, top, bottom = 40, 350, 178, 520
    stock, flatout = ([run.history[name] for name in _LOSSES] for run in (story.stock, story.flatout))
    epochs = len(stock[0])
    y, axis = _loss_axis([loss for losses in (*stock, *flatout) for loss in losses], left, top, bottom)
    x = _scale(1, max(epochs, 2), left + 44, right - 20)
    parts = [
        _text(left, 140, "Loss after each epoch", "head"),
        f'<path class="wide" d="M{left + 5} 155H{left + 31}"/>',
        _text(left + 43, 160, "stock Keras", "small stocktext"),
        f'<path class="thin" d="M{left + 125} 155H{left + 156}"/>',
        _text(left + 163, 160, "flatout", "small flattext"),
        *axis,
        *(_text(x(epoch), bottom + 22, str(epoch), "small quiet mid") for epoch in range(1, epochs + 1)),
        _text((x(1) + x(epochs)) / 2, bottom + 42, "epoch", "small quiet mid"),
    ]
    for side, kind, dot in ((stock, "wide", None), (flatout, "thin", "dot")):
        for losses in side:
            parts += _curve(kind, [(x(epoch), y(loss)) for epoch, loss in enumerate(losses, 1)], dot)
    place = -math.inf
    for last, name in sorted(zip((losses[-1] for losses in flatout), _LOSSES.values(), strict=True), reverse=True):
        place = max(y(last), place + 17)
        parts.append(_text(right - 6, place + 4, f"{name} {last:.3f}", "small"))
    return parts


def _by_clock(story: Story) -> list[str]:
    """The validation loss above bars of the time that each epoch took, on one axis."""
    longest = max(story.stock.epoch_ends[-1], story.flatout.epoch_ends[-1])
    x = _scale(0, longest, 564, 905)
    losses = [*story.stock.history["val_loss"], *story.flatout.history["val_loss"]]
    y, axis = _loss_axis(losses, left=520, top=178, bottom=390)
    parts = [_text(520, 140, "Validation loss by the clock", "head"), *axis]
    for run, name, kind, line, dot, top in (
        (story.stock, "stock Keras", "stock", "stockline", "stockdot", 428),
        (story.flatout, "flatout", "flat", "thin", "dot", 472),
    ):
        points = [(x(end), y(loss)) for end, loss in zip(run.epoch_ends, run.history["val_loss"], strict=True)]
        parts += _curve(line, points, dot)
        parts.append(_text(points[-1][0], points[-1][1] + 21, name, f"small mid {kind}text"))
        for epoch, (begin, end) in enumerate(itertools.pairwise([0.0, *run.epoch_ends]), 1):
            width = max(x(end) - x(begin) - 1.5, 0.5)
            parts.append(f'<rect class="{kind}bar" x="{x(begin):.1f}" y="{top}" width="{width:.1f}" height="22"/>')
            if width > 14:
                parts.append(_text(x(begin) + width / 2, top + 15.5, str(epoch), f"small mid on{kind}"))
        parts.append(_text(points[-1][0] + 7, top + 16, f"{run.seconds:.2f} s", f"{kind}text"))
    parts.append(f'<path class="axis" d="M{x(0):.1f} 506H{x(longest):.1f}"/>')
    step = next(step for step in _TICKS if longest / step <= 7)
    for tick in range(int(longest / step) + 1):
        parts.append(f'<path class="axis" d="M{x(tick * step):.1f} 506v5"/>')
        parts.append(_text(x(tick * step), 526, f"{tick * step:g}", "small quiet mid"))
    notes = ("seconds since fit() was called", "in the bars: the epochs; the first one also compiles")
    return parts + [_text(564, 548 + 18 * row, note, "small quiet") for row, note in enumerate(notes)]


def _loss_axis(losses: Sequence[float], left: float, top: float, bottom: float) -> tuple[Scale, list[str]]:
    """The scale of losses and its axis, a range frame: it spans the data, and its two numbers are their extremes."""
    low, high = min(losses), max(losses)
    y = _scale(low, high, bottom, top)
    return y, [
        f'<path class="axis" d="M{left + 34} {y(high):.1f}V{y(low):.1f}"/>',
        _text(left + 28, y(high) + 5, f"{high:.2f}", "small quiet end"),
        _text(left + 28, y(low) + 5, f"{low:.2f}", "small quiet end"),
    ]


def _scale(low: float, high: float, start: float, stop: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(text)}</text>'


def _curve(kind: str, points: Sequence[tuple[float, float]], dot: str | None) -> list[str]:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = [f'<circle class="{dot}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>' for x, y in points if dot]
    return [f'<path class="{kind}" d="M{path}"/>', *dots]
