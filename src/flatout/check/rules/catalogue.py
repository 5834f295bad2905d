"""All rules, by code, and what listens to the walk."""

from __future__ import annotations

from flatout.check.reading.events import Handlers

from . import rules_host, rules_loops, rules_numeric, rules_tables, rules_trace
from .rule import Rule

FAMILIES = (
    ("FO1xx", "loops and shapes", rules_loops),
    ("FO2xx", "work on the host", rules_host),
    ("FO3xx", "tracing", rules_trace),
    ("FO4xx", "tables", rules_tables),
    ("FO5xx", "numbers", rules_numeric),
)
RULES: dict[str, Rule] = {rule.code: rule for _, _, family in FAMILIES for rule in family.RULES}
HANDLERS: list[Handlers] = [family.HANDLERS for _, _, family in FAMILIES]
