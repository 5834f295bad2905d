"""The picture of many models: a metric of each by epoch, the best one on top, and how each point came out."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flatout.base.drawing import PAGE_STYLE, STYLE, curve, label, range_axis, scale
from flatout.base.errors import InvalidOption

from .many import numbers_among

if TYPE_CHECKING:
    from .many import Many

WIDTH, HEIGHT = 1000, 470
# Of the small letters.
_CHARACTER = 7.5
_ROWS = 40
_LINES = """.fo .one{stroke:var(--stock);stroke-width:1.4;fill:none;stroke-linejoin:round;opacity:.75}
.fo .best{stroke:var(--flat);stroke-width:2.6;fill:none;stroke-linejoin:round} .fo .spot{fill:var(--stock)}"""


class Picture:
    """The histories of a metric, as SVG; a notebook shows it."""

    def __init__(self, many: Many, metric: str):
        self._many, self._metric = many, metric
        self._best = many.best(metric)

    def _repr_svg_(self) -> str:
        return self.svg()

    def write(self, path: Path) -> None:
        """Write an .svg file, or an .html page with the picture and the results in a table."""
        if path.suffix not in (".svg", ".html"):
            raise InvalidOption(f"A picture is written to a file that ends in .svg or .html. Received: {str(path)!r}.")
        path.write_text(self.svg() if path.suffix == ".svg" else self.page(), encoding="utf-8")

    def svg(self) -> str:
        curves = [_finite(history.get(self._metric, [])) for history in self._many.histories]
        values = [value for one in curves for _, value in one]
        epochs = max((epoch for one in curves for epoch, _ in one), default=1)
        y, axis = range_axis(values, 40, 110, 400)
        x = scale(1, max(epochs, 2), 96, 560)
        best = curves[self._best]
        title = f"{self._metric} of {len(curves)} models"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="fo" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{html.escape(title)}"><style>{STYLE}{_LINES}</style>',
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
            label(40, 52, title, "title"),
            label(40, 79, f"Best: {self._words(self._best)}", "quiet"),
            *axis,
            *(label(x(epoch), 424, str(epoch), "small quiet mid") for epoch in _ticks(epochs)),
            label((x(1) + x(max(epochs, 2))) / 2, 446, "epoch", "small quiet mid"),
        ]
        for one in curves:
            parts += curve("one", [(x(epoch), y(value)) for epoch, value in one], None) if one else []
        parts += curve("best", [(x(epoch), y(value)) for epoch, value in best], "dot")
        return "\n".join([*parts, *self._by_axis(y), "</svg>"])

    def page(self) -> str:
        """The picture and the results as one HTML page."""
        rows = self._many.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        ranked = self._many.ranked(self._metric)
        cells = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_short(rows[number].get(name)))}</td>' for name in names)}</tr>"
            for number in ranked
        )
        heads = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>flatout: many models</title>'
            f'<meta name="viewport" content="width=device-width"><style>{PAGE_STYLE}</style><main>{self.svg()}'
            f"<table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table></main></html>\n"
        )

    def _by_axis(self, y: Any) -> list[str]:
        """Right of the curves: the last value of each model by the values of the axis that tells them apart most."""
        points, histories = self._many.points, self._many.histories
        finals = {
            n: ends[-1][1] for n, history in enumerate(histories) if (ends := _finite(history.get(self._metric, [])))
        }
        axes = [name for name in points[0] if 1 < len({_short(point.get(name)) for point in points}) <= _ROWS]
        if not axes:
            return []
        name = max(axes, key=lambda axis: _explained(axis, points, finals))
        groups = sorted({_short(point.get(name)): point.get(name) for point in points}.values(), key=_order)
        x = scale(0, max(1, len(groups) - 1), 680, 940)
        parts = [label(640, 100, f"last {self._metric} by {name}", "head")]
        # As many names as there is room for.
        width = _CHARACTER * (2 + max(len(_short(value)) for value in groups))
        every = math.ceil(width / (x(1) - x(0)))
        for place, value in enumerate(groups):
            if place % every == 0:
                parts.append(label(x(place), 424, _short(value), "small quiet mid"))
            for number, final in sorted(finals.items(), key=lambda item: item[0] == self._best):
                if _short(points[number].get(name)) == _short(value):
                    kind = "dot" if number == self._best else "spot"
                    parts.append(f'<circle class="{kind}" cx="{x(place):.1f}" cy="{y(final):.1f}" r="3.6"/>')
        return parts

    def _words(self, number: int) -> str:
        return ", ".join(f"{name} {_short(value)}" for name, value in self._many.points[number].items())


def _finite(values: Any) -> list[tuple[int, float]]:
    """Epochs, from 1, and values, those that can be drawn."""
    return [(place + 1, float(value)) for place, value in numbers_among(values) if math.isfinite(value)]


def _explained(axis: str, points: Any, finals: dict[int, float]) -> float:
    """How far apart the means of an axis' values are."""
    groups: dict[str, list[float]] = {}
    for number, final in finals.items():
        groups.setdefault(_short(points[number].get(axis)), []).append(final)
    means = [sum(group) / len(group) for group in groups.values()]
    return max(means, default=0.0) - min(means, default=0.0)


def _ticks(epochs: int) -> list[int]:
    step = max(1, -(-epochs // 10))
    return list(range(1, epochs + 1, step))


def _order(value: Any) -> tuple[bool, Any]:
    is_number = isinstance(value, (int, float))
    return (not is_number, value if is_number else str(value))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:32]
