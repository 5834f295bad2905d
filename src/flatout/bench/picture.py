"""The demo's picture: one SVG, and one HTML page around it that needs no network.

Left, the loss after each epoch: the two trainings lie on each other. Right, the same by the clock, above bars of
the time that each epoch took, on one time axis.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
Scale = Callable[[float], float]


@dataclass(frozen=True)
class Line:
    """One training: losses by epoch, and the seconds from the call of `fit` to each epoch's end and to its return."""

    loss: Sequence[float]
    val_loss: Sequence[float]
    epoch_ends: Sequence[float]
    seconds: float


@dataclass(frozen=True)
class Story:
    """What the picture tells."""

    stock: Line
    flatout: Line
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
    rows = "".join(
        f"<tr><td>{epoch + 1}</td>"
        + "".join(f"<td>{line.loss[epoch]:.6f}</td>" for line in (story.stock, story.flatout))
        + "".join(f"<td>{line.val_loss[epoch]:.6f}</td>" for line in (story.stock, story.flatout))
        + "".join(f"<td>{line.epoch_ends[epoch]:.2f} s</td>" for line in (story.stock, story.flatout))
        + "</tr>"
        for epoch in range(len(story.stock.loss))
    )
    heads = "".join(f"<th>{name}<br>{side}</th>" for name in ("loss", "val loss", "ended after") for side in _SIDES)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>flatout demo</title>'
        f'<meta name="viewport" content="width=device-width"><style>{PAGE_STYLE}</style><main>{svg(story)}'
        f"<table><thead><tr><th>epoch</th>{heads}</tr></thead><tbody>{rows}</tbody></table></main></html>\n"
    )


_SIDES = ("stock", "flatout")


def svg(story: Story, standalone: bool = False) -> str:
    """The picture alone; `standalone` adds what a file of its own needs."""
    namespace = 'xmlns="http://www.w3.org/2000/svg" ' if standalone else ""
    parts = [
        f'<svg {namespace}class="fo" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_title(story)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>' if standalone else "",
        *_headings(story),
        *_by_epoch(story),
        *_by_clock(story),
        *_bars(story),
        "</svg>",
    ]
    return "\n".join(parts)


def _title(story: Story) -> str:
    same = "The same numbers" if story.difference < 1e-3 else "Training"
    return f"{same}, {story.stock.seconds / story.flatout.seconds:.1f} times sooner"


def _headings(story: Story) -> list[str]:
    if story.difference == 0:
        same = "Every loss and accuracy of the two histories is equal, bit for bit."
    else:
        same = f"Largest difference between any two numbers of the two histories: {story.difference:.1g}."
    where = f"Data: {story.origin}."
    return [
        _text(40, 52, _title(story), "title"),
        _text(40, 79, story.setting, "quiet"),
        _text(40, 99, same, "quiet"),
        _text(960, 99, where, ("warn" if story.is_stand_in else "quiet") + " small end"),
    ]


def _by_epoch(story: Story) -> list[str]:
    left, right, top, bottom = 40, 350, 178, 520
    epochs = len(story.stock.loss)
    series = {
        "training": (story.stock.loss, story.flatout.loss),
        "validation": (story.stock.val_loss, story.flatout.val_loss),
    }
    y = _loss_scale(story, top, bottom)
    x = _scale(1, max(epochs, 2), left + 44, right - 20)
    parts = [
        _text(left, 140, "Loss after each epoch", "head"),
        f'<path class="wide" d="M{left + 5} 155H{left + 31}"/>',
        _text(left + 43, 160, "stock Keras", "small stocktext"),
        f'<path class="thin" d="M{left + 125} 155H{left + 156}"/>',
        _text(left + 163, 160, "flatout", "small flattext"),
        *_loss_axis(story, y, left),
        *(_text(x(epoch), bottom + 22, str(epoch), "small quiet mid") for epoch in range(1, epochs + 1)),
        _text((x(1) + x(epochs)) / 2, bottom + 42, "epoch", "small quiet mid"),
    ]
    labels = []
    for name, (stock, flatout) in series.items():
        parts.append(_path("wide", [(x(i + 1), y(value)) for i, value in enumerate(stock)]))
        labels.append((y(flatout[-1]), f"{name} {flatout[-1]:.3f}"))
    for _, flatout in series.values():
        parts.append(_path("thin", [(x(i + 1), y(value)) for i, value in enumerate(flatout)]))
        parts += [_dot("dot", x(i + 1), y(value)) for i, value in enumerate(flatout)]
    return parts + [_text(right - 6, place + 4, label, "small") for place, label in _spread(labels, 17)]


def _by_clock(story: Story) -> list[str]:
    top, bottom = 178, 390
    x, y = _clock_scale(story), _loss_scale(story, top, bottom, validation_alone=True)
    parts = [_text(520, 140, "Validation loss by the clock", "head"), *_loss_axis(story, y, 520, True)]
    for line, kind, dot, text, name in (
        (story.stock, "stockline", "stockdot", "stocktext", "stock Keras"),
        (story.flatout, "thin", "dot", "flattext", "flatout"),
    ):
        points = [(x(when), y(value)) for when, value in zip(line.epoch_ends, line.val_loss, strict=True)]
        parts.append(_path(kind, points))
        parts += [_dot(dot, *point) for point in points]
        parts.append(_text(points[-1][0], points[-1][1] + 21, name, f"small mid {text}"))
    return parts


def _bars(story: Story) -> list[str]:
    x = _clock_scale(story)
    parts = []
    for line, top, name in ((story.stock, 428, "stock"), (story.flatout, 472, "flat")):
        begins = [0.0, *line.epoch_ends[:-1]]
        for epoch, (begin, end) in enumerate(zip(begins, line.epoch_ends, strict=True), 1):
            width = max(x(end) - x(begin) - 1.5, 0.5)
            parts.append(f'<rect class="{name}bar" x="{x(begin):.1f}" y="{top}" width="{width:.1f}" height="22"/>')
            if width > 14:
                parts.append(_text(x(begin) + width / 2, top + 15.5, str(epoch), f"small mid on{name}"))
        end = x(line.epoch_ends[-1])
        parts.append(_text(end + 7, top + 16, f"{line.seconds:.2f} s", f"{name}text"))
    longest = max(story.stock.epoch_ends[-1], story.flatout.epoch_ends[-1])
    parts.append(f'<path class="axis" d="M{x(0):.1f} 506H{x(longest):.1f}"/>')
    for tick in _ticks(longest):
        parts.append(f'<path class="axis" d="M{x(tick):.1f} 506v5"/>')
        parts.append(_text(x(tick), 526, f"{tick:g}", "small quiet mid"))
    notes = ("seconds since fit() was called", "in the bars: the epochs; the first one also compiles")
    return parts + [_text(564, 548 + 18 * row, note, "small quiet") for row, note in enumerate(notes)]


def _clock_scale(story: Story) -> Scale:
    return _scale(0, max(story.stock.epoch_ends[-1], story.flatout.epoch_ends[-1]), 564, 905)


def _loss_range(story: Story, validation_alone: bool) -> tuple[float, float]:
    lines = (story.stock, story.flatout)
    values = [value for line in lines for value in line.val_loss]
    if not validation_alone:
        values += [value for line in lines for value in line.loss]
    return min(values), max(values)


def _loss_scale(story: Story, top: float, bottom: float, validation_alone: bool = False) -> Scale:
    low, high = _loss_range(story, validation_alone)
    return _scale(low, high, bottom, top)


def _loss_axis(story: Story, y: Scale, left: float, validation_alone: bool = False) -> list[str]:
    # A range frame: the axis spans the data, and its two numbers are the data's own extremes.
    low, high = _loss_range(story, validation_alone)
    return [
        f'<path class="axis" d="M{left + 34} {y(high):.1f}V{y(low):.1f}"/>',
        _text(left + 28, y(high) + 5, f"{high:.2f}", "small quiet end"),
        _text(left + 28, y(low) + 5, f"{low:.2f}", "small quiet end"),
    ]


def _scale(low: float, high: float, start: float, stop: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def _ticks(longest: float) -> list[float]:
    step = next(s for s in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e9) if longest / s <= 7)
    return [round(step * i, 6) for i in range(int(longest / step) + 1)]


def _spread(labels: list[tuple[float, str]], gap: float) -> list[tuple[float, str]]:
    placed: list[tuple[float, str]] = []
    for place, label in sorted(labels):
        placed.append((max(place, placed[-1][0] + gap) if placed else place, label))
    return placed


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(text)}</text>'


def _path(kind: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<path class="{kind}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + '"/>'


def _dot(kind: str, x: float, y: float) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'
