"""Whether two runs of a script came to the same: exit code, `History` of each fit, what a terminal would show."""

from __future__ import annotations

import math
import re
from typing import Any

from recorded_run import RecordedRun

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_DURATION = re.compile(r"\b\d[\d:.]*\s?(?:[mun]?s|sec|secs|seconds|minutes)(?:/\w+)?(?!\w)")
_VALUE = r"(?:-?\d+\.\d{4}(?:e[+-]\d+)?|nan|-?inf)"
# Keras' bar, which the next thing printed follows on the same line if it comes before the epoch's end.
_BAR = re.compile(rf"\s*(\d+)/(\d+|Unknown)\s+(?:━+)?\s*#s(?: #s)?((?: - [^\s:]+: {_VALUE})*)")
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?|\bnan\b|\binf\b")


def difference(one: RecordedRun, other: RecordedRun, tolerance: float) -> str:
    """What differs, in words; empty if nothing does. `tolerance` is relative, and absolute near zero."""
    if one.exit_code != other.exit_code:
        return f"exit code {one.exit_code} and {other.exit_code}"
    if len(one.fits) != len(other.fits):
        return f"{len(one.fits)} and {len(other.fits)} fits"
    for number, (fit, again) in enumerate(zip(one.fits, other.fits, strict=True), 1):
        if found := _in_histories(fit, again, tolerance):
            return f"fit {number}: {found}"
    return _in_lines(shown(one.printed), shown(other.printed), tolerance)


def _in_histories(one: dict[str, Any], other: dict[str, Any], tolerance: float) -> str:
    if one["epochs"] != other["epochs"]:
        return f"epochs {one['epochs']} and {other['epochs']}"
    history, again = one["history"], other["history"]
    if list(history) != list(again):
        return f"logs {', '.join(history)} and {', '.join(again)}"
    for name in history:
        values, others = _flat(history[name]), _flat(again[name])
        if len(values) != len(others):
            return f"{name} {history[name]} and {again[name]}"
        for value, its_other in zip(values, others, strict=True):
            if not _is_close(value, its_other, tolerance):
                return f"{name} {value!r} and {its_other!r}"
    return ""


def _flat(values: Any) -> list[Any]:
    return [one for value in values for one in _flat(value)] if isinstance(values, list) else [values]


def _is_close(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    if one == other:
        return True
    return tolerance > 0 and math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)


def _in_lines(lines: list[str], others: list[str], tolerance: float) -> str:
    for line, other in zip(lines, others, strict=False):
        if line != other and not (tolerance and _reads_the_same(line, other, tolerance)):
            return f"printed {line!r} and {other!r}"
    if len(lines) != len(others):
        longer = max(lines, others, key=len)
        return f"printed {len(lines)} and {len(others)} lines, from {longer[min(len(lines), len(others))]!r} on"
    return ""


def _reads_the_same(line: str, other: str, tolerance: float) -> bool:
    numbers, others = ([float(number) for number in _NUMBER.findall(text)] for text in (line, other))
    return _NUMBER.sub("#", line) == _NUMBER.sub("#", other) and all(
        _is_close(one, its_other, tolerance) for one, its_other in zip(numbers, others, strict=True)
    )


def shown(printed: str) -> list[str]:
    """The lines that stay on a terminal, durations masked, without bars that something else interrupted.

    How far a bar had come when a callback printed is a matter of time: Keras draws it 20 times a second.
    """
    lines: list[str] = []
    last_bar: tuple[int, str, list[str]] | None = None
    for raw in _COLOUR.sub("", printed).replace("\b", "").split("\n"):
        line = " ".join(_DURATION.sub("#s", raw.rstrip("\r").rpartition("\r")[2]).split())
        bar = _BAR.match(line)
        rest = line[bar.end() :].strip() if bar else line
        if bar and not rest and bar[1] == bar[2]:
            names = re.findall(r" - ([^\s:]+):", bar[3])
            if last_bar and last_bar[1] == bar[2] and names[: len(last_bar[2])] == last_bar[2]:
                # The same bar before a callback printed; or of an equal call, whose results a script can print.
                del lines[last_bar[0]]
            last_bar = (len(lines), bar[2], names)
            rest = line
        elif re.match(r"Epoch \d+/\d+$", rest):
            last_bar = None
        if rest:
            lines.append(rest)
    return lines
