"""All rules, by code, and what listens to the walk."""

from __future__ import annotations

import tomllib
from pathlib import Path

from flatout.check.reading.events import Handlers

from . import rules_host, rules_loops, rules_numeric, rules_tables, rules_trace
from .rule import Rule

FAMILIES = {
    "FO1": "loops and shapes",
    "FO2": "work on the host",
    "FO3": "tracing",
    "FO4": "tables",
    "FO5": "numbers",
}
_PAGES = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
RULES = {code: Rule(code, **page) for code, page in _PAGES.items()}
_IN_STEPS: list[Handlers] = [
    rules_loops.HANDLERS,
    rules_host.HANDLERS,
    rules_trace.HANDLERS,
    rules_tables.HANDLERS,
    rules_numeric.HANDLERS,
]
# Between two batches the host may do as it likes, as long as it is quick.
_IN_CALLBACKS: list[Handlers] = [
    rules_loops.HANDLERS,
    rules_host.IN_CALLBACKS,
    rules_trace.IN_CALLBACKS,
    rules_numeric.IN_CALLBACKS,
]


def handlers_for(kind: str) -> list[Handlers]:
    """What listens to the walk through a loss, metric, step or callback."""
    return _IN_CALLBACKS if kind == "callback" else _IN_STEPS


def family(start: str) -> list[Rule]:
    """The rules whose codes begin so."""
    return [rule for code, rule in RULES.items() if code.startswith(start)]
