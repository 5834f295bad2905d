"""A diagnosis in a terminal, and the words in which the terminal and the page say its numbers.

Strings come from the user's files, so none of them is read as markup or reaches the terminal as a control sequence.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from flatout.doctor.diagnosis_facts import Change, DiagnosisFacts, Gain, Interval, Part

# The order of lanes and colours; hues as those of the page, in a lightness that shows on black and on white.
_COLOURS = {
    "input": "#2f86c9",
    "callbacks": "#d9622b",
    "loss": "#c46f9f",
    "metrics": "#c9b200",
    "host": "#e0991a",
    "launch": "#5db5e8",
    "compute": "#12936f",
    "transfer": "#7f8792",
    "steps": "#6f83a3",
    "between": "#9aa1ab",
    "epoch-callbacks": "#d9622b",
    "validation": "#2fa08f",
    "compile": "#b8507f",
}
PART_NAMES = tuple(_COLOURS)
_BLOCK = "█"
# Without colours, neighbours are told apart by their pattern.
_PATTERNS = "█░▓▒"
_WIDEST_BAR = 76
_WIDTH_OF_TEXT = 100
_PLAIN = str.maketrans({"█": "#", "░": ".", "▓": "=", "▒": "-", "µ": "u", "•": "*", "–": "-", "…": ".", "’": "'"})
# Control characters, those that turn the reading direction, and halves of characters, which no file can hold.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """The text, with what would steer a terminal or reorder a line spelled out as in a Python string."""
    return _UNFIT.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def _unit(seconds: float) -> tuple[float, str]:
    if seconds == 0 or abs(seconds) >= 0.9995:
        return 1.0, "s"
    return (1e3, "ms") if abs(seconds) >= 0.9995e-3 else (1e6, "µs")


def _digits(value: float) -> str:
    """Three significant digits, and no exponent."""
    places = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:,.{places}f}"
    return "0" if value == 0 or not float(text.replace(",", "")) else text


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them: `"12.4 ms"`."""
    factor, unit = _unit(seconds)
    return f"{_digits(seconds * factor)} {unit}"


def spread(interval: Interval) -> str:
    """From where to where, in the unit of `duration(interval.mid)`, which is not said; empty if it is one value."""
    factor, _ = _unit(interval.mid)
    low, high = _digits(interval.low * factor), _digits(interval.high * factor)
    return "" if low == high else f"{low} to {high}"


def percent(share: float) -> str:
    """`"62 %"`."""
    return "under 1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def _times(value: float) -> str:
    text = f"{value:,.{2 if value < 2 else 1 if value < 10 else 0}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def gain_in_words(gain: Gain) -> str:
    """`"3.1x faster (2.8 to 3.4), measured"`, or `"about 3x faster, at most 4x"`."""
    if not gain.is_measured:
        about, most = _times(gain.times), _times(gain.high)
        return f"about {about}x faster, at most {most}x" if about != most else f"at most {most}x faster"
    if gain.times < 1.005:
        return "no faster, measured"
    low, high = _times(gain.low), _times(gain.high)
    return f"{_times(gain.times)}x faster{f' ({low} to {high})' if low != high else ''}, measured"


def best(diagnosis: DiagnosisFacts) -> Change | None:
    """The first finding, as they are ranked, whose gain is known."""
    return next((finding for finding in diagnosis.findings if finding.gain), None)


def place(path: str, line: int) -> str:
    """`"train.py:42"`; empty if there is no file."""
    return f"{path}:{line}" if path and line else path


def as_text(diagnosis: DiagnosisFacts) -> str:
    """The diagnosis as plain text, without colours."""
    file = io.StringIO()
    console = Console(file=file, width=_WIDTH_OF_TEXT, color_system=None, force_terminal=False, force_jupyter=False)
    console.print(_sheet(diagnosis, console))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def show(diagnosis: DiagnosisFacts, console: Console | None = None) -> None:
    """Print the diagnosis."""
    console = console or Console()
    if not console.options.ascii_only:
        console.print(_sheet(diagnosis, console))
        return
    # Rich raises an error for what the terminal's encoding lacks.
    with console.capture() as capture:
        console.print(_sheet(diagnosis, console))
    words = capture.get().translate(_PLAIN)
    console.file.write(words.encode(console.encoding, "replace").decode(console.encoding))


def _sheet(diagnosis: DiagnosisFacts, console: Console) -> Group:
    blocks = [
        _verdict(diagnosis),
        *_budget("Where a step goes", diagnosis.parts, console),
        *_budget("Where an epoch goes; compiling is paid once", diagnosis.epoch, console),
        *_findings(diagnosis.findings),
        *_listed("What `python -m flatout` would do", diagnosis.plan),
        *_listed("Not checked", diagnosis.unchecked),
    ]
    if diagnosis.seconds:
        blocks.append(Text(f"The diagnosis took {duration(diagnosis.seconds)}.", style="dim"))
    return Group(*(Padding(block, (0, 0, 1, 0)) for block in blocks))


def _words(text: str) -> str:
    return " ".join(clean(text).split())


def _verdict(diagnosis: DiagnosisFacts) -> Panel:
    around = spread(diagnosis.step)
    facts = f"A step takes {duration(diagnosis.step.mid)}{f' ({around})' if around else ''}."
    lines = Text.assemble((_words(diagnosis.verdict), "bold"), "\n", facts)
    if (finding := best(diagnosis)) and finding.gain:
        lines.append(f"\nBest change: {gain_in_words(finding.gain)} ({_words(finding.code)}).")
    title = Text(_words(diagnosis.kind), style="bold")
    return Panel(lines, title=title, title_align="left", padding=(0, 1))


def _swatches(parts: Sequence[Part], console: Console) -> list[tuple[str, str]]:
    """The character and the style of each part."""
    if console.color_system:
        return [(_BLOCK, _COLOURS.get(part.name, "default")) for part in parts]
    return [(_PATTERNS[index % len(_PATTERNS)], "") for index in range(len(parts))]


def _budget(title: str, parts: Sequence[Part], console: Console) -> Iterator[RenderableType]:
    if not parts:
        return
    swatches = _swatches(parts, console)
    width = min(console.width, _WIDEST_BAR)
    whole = max(1.0, sum(part.share for part in parts))
    bar, reached = Text(no_wrap=True, overflow="crop"), 0.0
    for part, (character, style) in zip(parts, swatches, strict=True):
        cells = round((reached + part.share) / whole * width) - round(reached / whole * width)
        bar.append(character * max(cells, 0), style)
        reached += part.share
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "left", "right", "right", "left"):
        table.add_column(justify=justify, overflow="fold")  # type: ignore[arg-type]
    for part, swatch in zip(parts, swatches, strict=True):
        numbers = ("", "", "not separable from noise")
        if part.is_separable:
            numbers = (percent(part.share), duration(part.seconds.mid), spread(part.seconds))
        share, seconds, note = map(Text, numbers)
        note.stylize("dim")
        table.add_row(Text(*swatch), Text(_words(part.label or part.name)), share, seconds, note)
    yield Group(Text(title, style="bold"), bar, table)


def _findings(findings: Sequence[Change]) -> Iterator[RenderableType]:
    for rank, finding in enumerate(findings, 1):
        head = Text.assemble((_words(finding.code), "bold cyan"), "  ", (_words(finding.title), "bold"))
        lines = [Text(_words(finding.change))]
        if finding.gain:
            lines.insert(0, Text(gain_in_words(finding.gain), style="green"))
        if where := place(finding.path, finding.line):
            lines.insert(0, Text(_words(where), style="dim"))
        if finding.is_automatic:
            lines.append(Text("`python -m flatout` does this by itself.", style="dim"))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_row(Text(str(rank)), Group(head, *lines))
        title = [Text("What to change, by gain", style="bold")] if rank == 1 else []
        yield Group(*title, table)


def _listed(title: str, items: Sequence[str]) -> Iterator[RenderableType]:
    if items:
        table = Table.grid(padding=(0, 1, 0, 0))
        for item in items:
            table.add_row("•", Text(_words(item), overflow="fold"))
        yield Group(Text(title, style="bold"), table)
