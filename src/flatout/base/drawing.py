"""Pictures as SVG text that needs no library: scales, labels, curves, and the one style of all of them."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

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
Scale = Callable[[float], float]


def scale(low: float, high: float, start: float, stop: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (stop - start)


def label(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(words)}</text>'


def curve(kind: str, points: Sequence[tuple[float, float]], dot: str | None) -> list[str]:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = [f'<circle class="{dot}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>' for x, y in points if dot]
    return [f'<path class="{kind}" d="M{path}"/>', *dots]


def range_axis(values: Sequence[float], left: float, top: float, bottom: float) -> tuple[Scale, list[str]]:
    """The scale of some values and its axis, a range frame: it spans them, and its two numbers are their extremes."""
    low, high = min(values), max(values)
    y = scale(low, high, bottom, top)
    return y, [
        f'<path class="axis" d="M{left + 34} {y(high):.1f}V{y(low):.1f}"/>',
        label(left + 28, y(high) + 5, f"{high:.3g}", "small quiet end"),
        label(left + 28, y(low) + 5, f"{low:.3g}", "small quiet end"),
    ]
