"""Writes docs/rules/*.md, and the list of rules in docs/losses.md, from the rules themselves.

    python docs/write_rules.py

A test compares the files with what this would write.
"""

from __future__ import annotations

from pathlib import Path

from flatout.check.rules.catalogue import FAMILIES, RULES, family
from flatout.check.rules.rule import BACKENDS
from flatout.check.rules.rule_pages import page, wrapped

_BEGIN, _END = "<!-- rules: begin -->", "<!-- rules: end -->"


def listing() -> str:
    """All rules, for docs/losses.md."""
    lines = []
    for start, about in FAMILIES.items():
        lines += [f"### {start}xx: {about}", ""]
        for rule in family(start):
            levels = ", ".join(f"{backend} {rule.severity(backend)}" for backend in BACKENDS)
            lines.append(wrapped(f"- [{rule.code}](rules/{rule.code}.md): {rule.summary} ({levels})", "  "))
        lines.append("")
    return "\n".join(lines)


def with_listing(text: str) -> str:
    """The text of docs/losses.md with the present list of rules between its marks."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{listing()}\n{_END}{after}"


def pages() -> dict[str, str]:
    """File name under docs/rules to its text."""
    return {f"{rule.code}.md": page(rule) for rule in RULES.values()}


def write(docs: Path) -> None:
    """Write every page, and the list of docs/losses.md."""
    (docs / "rules").mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (docs / "rules" / name).write_text(text, encoding="utf-8")
    losses = docs / "losses.md"
    losses.write_text(with_listing(losses.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent)
