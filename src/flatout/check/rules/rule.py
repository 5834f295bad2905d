"""What a rule is, what a finding is, and how bad it is on which backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Backend = Literal["jax", "tensorflow", "torch"]
Severity = Literal["error", "wrong", "slow", "info"]
BACKENDS: tuple[Backend, ...] = ("jax", "tensorflow", "torch")
# From the worst to the mildest: "error" does not run, "wrong" runs and gives something else without a word.
SEVERITIES: tuple[Severity, ...] = ("error", "wrong", "slow", "info")


@dataclass(frozen=True)
class Rule:
    """One rule, as its page has it."""

    code: str  # "FO101".
    name: str  # A few words that name the pattern.
    summary: str  # What is found.
    why: str  # What it costs, and why.
    rewrite: str  # What to do instead, in a sentence; findings that know more say more.
    severities: Sequence[Severity]  # How bad it is on jax, tensorflow and torch.
    page: str  # All of it, in Markdown: code that the rule finds, as it should be, and when to leave it alone.

    def severity(self, backend: Backend) -> Severity:
        """How bad the pattern is on a backend."""
        return self.severities[BACKENDS.index(backend)]


@dataclass(frozen=True)
class Finding:
    """One place where a rule applies; lines and columns count from one."""

    code: str
    path: str  # As the user named it where possible.
    line: int
    column: int
    message: str
    severity: Severity  # On the backend that was asked about.
    why: str  # What it costs.
    fix: str  # The rewrite, in words or code.
    function: str = ""  # The loss, metric, step or callback in which it was found.
    seen: str = "source"  # Or "trace", or "source and trace".


def by_place(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by file and line."""
    return sorted(findings, key=lambda one: (one.path, one.line, one.column, one.code))
