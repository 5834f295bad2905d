"""A diagnosis as HTML: a page that needs no other file and asks the network for nothing, and a piece for notebooks.

There is no script in it. Strings come from the user's files: each goes through `_text` on its way into the page, and
none becomes the name of a tag, an attribute or a class. The style is in page.css.
"""

from __future__ import annotations

import functools
import html
import math
import re
from collections.abc import Iterable, Sequence
from importlib import resources

from flatout.base.sizes import as_size
from flatout.doctor.diagnosis_facts import Change, DiagnosisFacts, HotLine, Memory, Part, Span, Variant

from .terminal import PART_NAMES, best, clean, duration, gain_in_words, percent, place, spread

_PAGE_STYLE = """
body { margin: 0; background: #fbfbf9; }
@media (prefers-color-scheme: dark) { body { background: #14161a; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_RUN = "<code>python -m flatout</code>"
# A share that has room for its number in the bar of a phone, which is 350 pixels wide.
_ROOM_FOR_NUMBER = 0.115
_WIDTH_OF_LANE = 1000
_MOST_SPANS = 2000


def page(diagnosis: DiagnosisFacts) -> str:
    """The diagnosis as one HTML document."""
    title = _text(f"{diagnosis.kind}: flatout doctor")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{title}</title>'
        f"<style>{_PAGE_STYLE}{_style()}</style></head>\n<body>{_body(diagnosis, 'main')}</body></html>\n"
    )


def fragment(diagnosis: DiagnosisFacts) -> str:
    """The same for a notebook, whose own looks it leaves alone."""
    return f"<style>{_style()}</style>{_body(diagnosis, 'div')}"


@functools.cache
def _style() -> str:
    room = resources.files(__name__.rpartition(".")[0])
    return (room / "page.css").read_text(encoding="utf-8")


def _body(diagnosis: DiagnosisFacts, tag: str) -> str:
    blocks = (
        _header(diagnosis),
        _budget("Where a step goes", "step", diagnosis.parts),
        _budget("Where an epoch goes", "epoch", diagnosis.epoch),
        _findings(diagnosis.findings),
        _hot_lines(diagnosis.hot_lines),
        _timeline(diagnosis.timeline),
        _memory(diagnosis.memory),
        _variants(diagnosis.variants),
        _section(f"What {_RUN} would do", _listed(diagnosis.plan)) if diagnosis.plan else "",
        _section("Not checked", _listed(diagnosis.unchecked)) if diagnosis.unchecked else "",
        _facts(diagnosis.facts),
        f"<footer>The diagnosis took {duration(diagnosis.seconds)}.</footer>" if diagnosis.seconds else "",
    )
    body = "\n".join(block for block in blocks if block)
    return f'<{tag} class="fo-doctor">\n{body}\n</{tag}>'


def _text(text: str) -> str:
    return html.escape(clean(text), quote=True)


def _isolated(text: str) -> str:
    """The text in a reading direction of its own, as its first letters have it."""
    return f"<bdi>{_text(text)}</bdi>"


def _prose(text: str) -> str:
    """The text, with what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", _text(text))


def _around(start: str, content: str) -> str:
    """The content in the element that starts so; nothing if it is empty."""
    end = start.partition(" ")[0].strip("<>")
    return f"{start}{content}</{end}>" if content else ""


def _section(title: str, content: str, note: str = "") -> str:
    words = _around('<p class="note">', note)
    return f"<section><h2>{title}</h2>{words}{content}</section>"


def _listed(items: Iterable[str]) -> str:
    return f'<ul class="plain">{"".join(f"<li><bdi>{_prose(item)}</bdi></li>" for item in items)}</ul>'


def _colour(name: str) -> str:
    return f"c-{name if name in PART_NAMES else 'other'}"


def _swatch(name: str, is_separable: bool = True) -> str:
    noise = "" if is_separable else " hidden-in-noise"
    return f'<span class="swatch {_colour(name)}{noise}" aria-hidden="true"></span>'


def _named(name: str, label: str, is_separable: bool = True) -> str:
    return f'<span class="name">{_swatch(name, is_separable)}{_isolated(label or name)}</span>'


def _table(columns: Sequence[str], heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, in which the last cell of a short row spans the rest.

    A column is named by the class that gives it its width in page.css, and ends with "#" if it holds numbers.
    """
    kinds = [' class="number"' if column.endswith("#") else "" for column in columns]
    widths = "".join(f'<col class="{column}">' for column in (column.rstrip("#") for column in columns))
    head = "".join(f'<th scope="col"{kind}>{head}</th>' for kind, head in zip(kinds, heads, strict=True))
    body = ""
    for row in rows:
        rest = f' colspan="{len(columns) - len(row) + 1}"' if len(row) < len(columns) else ""
        spans = [""] * (len(row) - 1) + [rest]
        cells = zip(kinds[: len(row)], spans, row, strict=True)
        body += f"<tr>{''.join(f'<td{kind}{span}>{cell}</td>' for kind, span, cell in cells)}</tr>"
    return f"<table><colgroup>{widths}</colgroup><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _header(diagnosis: DiagnosisFacts) -> str:
    part = diagnosis.kind.removesuffix("-bound")
    badge = _swatch("callbacks" if part == "callback" else part)
    around = spread(diagnosis.step)
    tiles = [_tile("A step, on stock Keras", duration(diagnosis.step.mid), f"{around}, nine in ten" if around else "")]
    if (finding := best(diagnosis)) and finding.gain:
        times, _, how = gain_in_words(finding.gain).partition(" faster")
        about = f"{_text(finding.code)}: {_prose(finding.title)}"
        tiles.append(_tile("Best change", f"{times} faster", re.sub("[()]", "", how).lstrip(", "), about))
    if count := sum(finding.is_automatic for finding in diagnosis.findings):
        changes = f"{count} of {len(diagnosis.findings)} changes"
        tiles.append(_tile("Without touching the code", changes, f"made by {_RUN}"))
    return (
        f'<header><div class="top"><span class="badge">{badge}{_isolated(diagnosis.kind)}</span>'
        f'<span class="brand">flatout doctor</span></div><h1 dir="auto">{_prose(diagnosis.verdict)}</h1>'
        f'<dl class="tiles">{"".join(tiles)}</dl></header>'
    )


def _tile(name: str, value: str, *notes: str) -> str:
    small = "".join(_around('<dd class="small">', note) for note in notes)
    return f'<div class="tile"><dt>{name}</dt><dd class="big">{value}</dd>{small}</div>'


def _budget(title: str, whole: str, parts: Sequence[Part]) -> str:
    if not parts:
        return ""
    seen = [part for part in parts if part.share > 0]
    bar = "".join(
        f'<span class="{_colour(part.name)}" style="flex:{part.share:.4f} 0 0">'
        f"{percent(part.share) if part.share >= _ROOM_FOR_NUMBER else ''}</span>"
        for part in seen
    )
    # What the parts leave of the whole stays empty.
    rest = 1 - sum(part.share for part in seen)
    if rest > 0.005:
        bar += f'<span style="flex:{rest:.4f} 0 0"></span>'
    said = _text(", ".join(f"{part.label or part.name} {percent(part.share)}" for part in seen))
    slim = " slim" if whole == "epoch" else ""
    rows: list[tuple[str, ...]] = [
        (_named(part.name, part.label), percent(part.share), duration(part.seconds.mid), spread(part.seconds))
        if part.is_separable
        else (_named(part.name, part.label, is_separable=False), '<span class="quiet">not separable from noise</span>')
        for part in parts
    ]
    heads = ("Part", "Share", f"In {'an' if whole == 'epoch' else 'a'} {whole}", "Nine in ten")
    table = _table(("", "share#", "time#", "spread#"), heads, rows)
    note = "Compiling is paid once, in the first epoch." if any(part.name == "compile" for part in parts) else ""
    return _section(title, f'<div class="bar{slim}" role="img" aria-label="{said}">{bar}</div>{table}', note)


def _findings(findings: Sequence[Change]) -> str:
    if not findings:
        return ""
    cards = "".join(f'<li class="finding">{_finding(finding)}</li>' for finding in findings)
    return _section("What to change", f'<ol class="findings">{cards}</ol>', "What gains most comes first.")


def _finding(finding: Change) -> str:
    badges = [f'<span class="badge mono">{_isolated(finding.code)}</span>']
    if finding.gain:
        badges.append(f'<span class="badge gain">{gain_in_words(finding.gain)}</span>')
    if finding.is_automatic:
        badges.append(f'<span class="badge auto">{_RUN} does it by itself</span>')
    sides = (("Now", finding.before), ("Better", finding.after))
    code = "".join(f"<figure><figcaption>{name}</figcaption>{_code(text)}</figure>" for name, text in sides if text)
    where = place(finding.path, finding.line)
    blocks = (
        _around('<div class="badges">', "".join(badges)),
        _around('<h3 dir="auto">', _prose(finding.title)),
        _around('<div class="place mono">', _isolated(where) if where else ""),
        _around('<p dir="auto">', _prose(finding.why)),
        _around('<p dir="auto" class="change">', _prose(finding.change)),
        _around('<div class="pair">', code),
    )
    return "".join(blocks)


def _code(text: str) -> str:
    # What scrolls must be reached by the keyboard.
    return f'<pre tabindex="0"><code>{_text(text.rstrip())}</code></pre>'


def _hot_lines(lines: Sequence[HotLine]) -> str:
    if not lines:
        return ""
    rows = (
        (
            f"<strong>{percent(line.share)}</strong><br>{_named(line.part, line.part)}",
            f'<span class="mono">{_isolated(place(line.path, line.line))}</span> '
            f'<span class="quiet">in</span> <span class="mono">{_isolated(line.function)}</span>'
            f"{_code(line.source.strip())}",
        )
        for line in lines
    )
    note = "Where a thread was found when it was looked at, of all such looks at this part."
    return _section("Lines that take the time", _table(("hot", ""), ("Of its part", "Line"), rows), note)


def _timeline(spans: Sequence[Span]) -> str:
    if not spans:
        return ""
    shown = sorted(spans, key=lambda span: span.start)[:_MOST_SPANS]
    begin = shown[0].start
    length = max(span.start + span.seconds for span in shown) - begin or 1.0
    found = dict.fromkeys(span.lane for span in shown)
    lanes = [name for name in PART_NAMES if name in found] + [name for name in found if name not in PART_NAMES]
    ticks = _ticks(length)
    drawn = "".join(_lane(lane, [span for span in shown if span.lane == lane], begin, length, ticks) for lane in lanes)
    axis = "".join(f'<span style="left:{tick / length:.3%}">{_round_number(tick)}</span>' for tick in ticks)
    axis = f'<div class="lane"><span class="name"></span><div class="ticks" aria-hidden="true">{axis}</div></div>'
    note = f"The first {_MOST_SPANS:,} of {len(spans):,} spans." if len(spans) > len(shown) else ""
    return _section("Some steps, as they ran", f"{drawn}{axis}", note)


def _ticks(length: float) -> list[float]:
    """Round numbers from 0, at most six, the last one well inside."""
    power = 10.0 ** math.floor(math.log10(length))
    step = next(size * power for size in (0.2, 0.5, 1, 2, 5) if length / (size * power) <= 5)
    return [tick * step for tick in range(6) if tick * step <= 0.95 * length]


def _round_number(seconds: float) -> str:
    return re.sub(r"\.0+ ", " ", duration(seconds)) if seconds else "0"


def _lane(lane: str, spans: Sequence[Span], begin: float, length: float, ticks: Sequence[float]) -> str:
    scale = _WIDTH_OF_LANE / length
    grid = "".join(f'<path class="grid" d="M{tick * scale:.1f} 0V20"/>' for tick in ticks)
    bars = "".join(
        f'<rect x="{(span.start - begin) * scale:.2f}" y="3" width="{max(span.seconds * scale, 1.5):.2f}" height="14">'
        f"<title>{_text(f'{span.name}: {duration(span.seconds)}')}</title></rect>"
        for span in spans
    )
    busy = duration(sum(span.seconds for span in spans))
    return (
        f'<div class="lane">{_named(lane, lane)}<svg class="{_colour(lane)}" viewBox="0 0 {_WIDTH_OF_LANE} 20" '
        f'preserveAspectRatio="none" role="img" aria-label="{_text(lane)}: {busy} of {duration(length)}">'
        f"{grid}{bars}</svg></div>"
    )


def _meter(value: float, most: float) -> str:
    share = min(max(value / most, 0.0), 1.0) if most > 0 else 0.0
    return f'<span class="meter" aria-hidden="true"><i style="width:{share:.2%}"></i></span>'


def _memory(memory: Sequence[Memory]) -> str:
    if not memory:
        return ""
    most = max(one.nbytes for one in memory)
    rows = ((_isolated(one.label), as_size(one.nbytes), _meter(one.nbytes, most)) for one in memory)
    return _section("Memory", _table(("half", "time#", ""), ("What", "Size", ""), rows))


def _variants(variants: Sequence[Variant]) -> str:
    if not variants:
        return ""
    most = max(one.seconds.mid for one in variants)
    rows = (
        (
            _isolated(one.label or one.name),
            duration(one.seconds.mid),
            spread(one.seconds),
            _meter(one.seconds.mid, most),
        )
        for one in variants
    )
    heads = ("Variant", "A step", "Nine in ten", "")
    note = "The step with something taken away, or on another engine."
    return _section("What was timed", _table(("half", "time#", "spread#", ""), heads, rows), note)


def _facts(facts: dict[str, str]) -> str:
    if not facts:
        return ""
    cells = "".join(f"<dt>{_isolated(name)}</dt><dd>{_isolated(value)}</dd>" for name, value in facts.items())
    return _section("This run", f'<dl class="facts">{cells}</dl>')
