"""All rules, by code, and what listens to the walk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from flatout.check.reading.events import Handlers

from . import rules_host, rules_loops, rules_numeric, rules_tables, rules_trace
from .rule import Rule

FAMILIES = {"FO1": "loops and shapes", "FO2": "work on the host", "FO3": "tracing", "FO4": "tables", "FO5": "numbers"}
# What is said of a rule is written once, in docs/rules; an installed package carries these pages beside this file.
_CARRIED, _DOCS = Path(__file__).with_name("pages"), Path(__file__).parents[4] / "docs" / "rules"
_PAGE = re.compile(
    r"# (?P<code>\w+): (?P<name>.+?)\n\n(?P<summary>.+?)\n\n## Before\n.+?## After\n.+?```\n\n(?P<rewrite>.+?)\n\n"
    r"## Why\n\n(?P<why>.+?)\n\n\| jax [^\n]+\n\| -[^\n]+\n\| (?P<severities>[^\n]+) \|\n",
    re.DOTALL,
)


def _read(page: str) -> Rule:
    found = _PAGE.match(page)
    if found is None:
        raise RuntimeError(f"A page of a rule that is not written as the others are. Received: {page[:40]!r}.")
    said: dict[str, Any] = {key: " ".join(text.split()) for key, text in found.groupdict().items()}
    said["severities"] = said["severities"].split(" | ")
    return Rule(**said, page=page)


_FILES = sorted((_CARRIED if _CARRIED.is_dir() else _DOCS).glob("FO*.md"))
if not _FILES:
    raise RuntimeError(f"The pages of the rules are not there. Expected: {_CARRIED} or {_DOCS}. Install flatout again.")
RULES = {file.stem: _read(file.read_text(encoding="utf-8")) for file in _FILES}
_IN_STEPS: list[Handlers] = [
    one.HANDLERS for one in (rules_loops, rules_host, rules_trace, rules_tables, rules_numeric)
]
# Between two batches the host may do as it likes, as long as it is quick.
_IN_CALLBACKS: list[Handlers] = [
    rules_loops.HANDLERS,
    *(one.IN_CALLBACKS for one in (rules_host, rules_trace, rules_numeric)),
]


def handlers_for(kind: str) -> list[Handlers]:
    """What listens to the walk through a loss, metric, step or callback."""
    return _IN_CALLBACKS if kind in ("callback", "loop") else _IN_STEPS
