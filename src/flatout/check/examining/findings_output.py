"""Findings as text, JSON and SARIF."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from flatout.base.version import __version__
from flatout.check.rules.catalogue import RULES
from flatout.check.rules.rule import Finding, Severity

FORMATS = ("text", "json", "sarif")
_LEVELS: dict[Severity, str] = {"error": "error", "wrong": "error", "slow": "warning", "info": "note"}


def as_text(findings: Sequence[Finding], backend: str) -> str:
    """One block per finding, and a line that counts them."""
    blocks = [
        f"{shown(one.path)}:{one.line}:{one.column}: {one.code} [{one.severity}] {one.message}\n"
        f"    why: {one.why}\n"
        f"    fix: {one.fix}" + (f"\n    seen: in the {one.seen}" if one.seen != "source" else "")
        for one in findings
    ]
    return "\n".join([*blocks, summary(findings, backend)])


def summary(findings: Sequence[Finding], backend: str) -> str:
    """`3 findings on torch: 1 wrong, 2 slow`."""
    if not findings:
        return f"Nothing found (for {backend})."
    counts = {severity: sum(one.severity == severity for one in findings) for severity in _LEVELS}
    parts = ", ".join(f"{count} {severity}" for severity, count in counts.items() if count)
    return f"{len(findings)} finding{'s' * (len(findings) > 1)} on {backend}: {parts}."


def as_json(findings: Sequence[Finding]) -> str:
    """A list of objects with the attributes of a `Finding`."""
    rows = [{**asdict(one), "path": shown(one.path)} for one in findings]
    return json.dumps(rows, indent=2)


def as_sarif(findings: Sequence[Finding]) -> str:
    """SARIF 2.1.0, as code scanning services read it."""
    used = sorted({one.code for one in findings})
    rules = [
        {
            "id": code,
            "name": RULES[code].name,
            "shortDescription": {"text": RULES[code].summary},
            "fullDescription": {"text": RULES[code].why},
            "help": {"text": RULES[code].rewrite},
        }
        for code in used
    ]
    results = [
        {
            "ruleId": one.code,
            "ruleIndex": used.index(one.code),
            "level": _LEVELS[one.severity],
            "message": {"text": f"{one.message} {one.fix}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": Path(shown(one.path)).as_posix()},
                        "region": {"startLine": one.line, "startColumn": one.column},
                    }
                }
            ],
            "properties": {"severity": one.severity, "function": one.function, "seen": one.seen},
        }
        for one in findings
    ]
    driver = {"name": "flatout", "semanticVersion": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    document = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2)


def shown(path: str) -> str:
    """A path relative to the current folder where it lies inside."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path
