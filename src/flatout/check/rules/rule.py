"""What a rule is, what a finding is, and how bad it is on which backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Backend = Literal["jax", "tensorflow", "torch"]
Severity = Literal["error", "wrong", "slow", "info"]
BACKENDS: tuple[Backend, ...] = ("jax", "tensorflow", "torch")
# From the worst to the mildest.
SEVERITIES: tuple[Severity, ...] = ("error", "wrong", "slow", "info")


@dataclass(frozen=True)
class Rule:
    """One rule, as its page has it.

    Attributes:
        code: "FO101".
        name: A few words that name the pattern.
        summary: What is found.
        why: What it costs, and why.
        rewrite: What to do instead, in a sentence; findings that know more say more.
        severities: How bad it is on jax, tensorflow and torch: "error" (does not run), "wrong" (runs, silently wrong),
            "slow" or "info".
        page: All of it, in Markdown: code that the rule finds, the same as it should be, and when to leave it alone.
    """

    code: str
    name: str
    summary: str
    why: str
    rewrite: str
    severities: Sequence[Severity]
    page: str

    def severity(self, backend: Backend) -> Severity:
        """How bad the pattern is on a backend."""
        return self.severities[BACKENDS.index(backend)]


@dataclass(frozen=True)
class Finding:
    """One place where a rule applies.

    Attributes:
        code: Of the rule.
        path: The file, as the user named it where possible.
        line: From one.
        column: From one.
        message: One sentence.
        severity: On the backend that was asked about.
        why: What it costs.
        fix: The rewrite, in words or code.
        function: The loss, metric, step or callback in which it was found.
        seen: "source", "trace" or "source and trace".
    """

    code: str
    path: str
    line: int
    column: int
    message: str
    severity: Severity
    why: str
    fix: str
    function: str = ""
    seen: str = "source"


def by_place(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by file and line."""
    return sorted(findings, key=lambda one: (one.path, one.line, one.column, one.code))
