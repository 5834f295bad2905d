"""`[tool.flatout]` in pyproject.toml, and the backend that the severities are for."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.base.errors import InvalidOption
from flatout.base.keras_home import configured_backend
from flatout.check.rules.catalogue import RULES
from flatout.check.rules.rule import BACKENDS, SEVERITIES, Backend, Severity

_KEYS = ("backend", "select", "ignore", "exclude", "severity", "per-file-ignores")


@dataclass(frozen=True)
class Config:
    """What is checked, and what is reported."""

    backend: Backend | None = None  # The severities are for it; None for the one that Keras is set to.
    select: tuple[str, ...] = ()  # Codes or beginnings of codes; all if empty.
    ignore: tuple[str, ...] = ()  # Those that are not reported.
    exclude: tuple[str, ...] = ()  # Patterns of files that are not checked.
    severity: Severity = "info"  # Findings below it are not reported.
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()  # Pattern of files to what is not reported in them.


def read_config(near: Path) -> Config:
    """The configuration in the nearest pyproject.toml at or above a path."""
    start = near.resolve()
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            try:
                tables = tomllib.loads(path.read_text(encoding="utf-8"))
            except tomllib.TOMLDecodeError as error:
                raise InvalidOption(f"{path} is not valid TOML. Received: {error}. Fix it, or move it away.") from error
            table = tables.get("tool", {}).get("flatout")
            if table is not None or "project" in tables:
                return config_of(table or {}, str(path))
    return Config()


def config_of(table: dict[str, Any], where: str) -> Config:
    """Check a `[tool.flatout]` table."""
    for key in table:
        if key not in _KEYS:
            raise InvalidOption(
                f"Unknown key in [tool.flatout] of {where}. Received: {key!r}. Expected: {', '.join(_KEYS)}."
            )
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise InvalidOption(f"per-file-ignores of {where} must be a table. Received: {per_file!r}.")
    return Config(
        _one_of(BACKENDS, table["backend"], "backend", where) if "backend" in table else None,
        codes_of(table.get("select", ()), where),
        codes_of(table.get("ignore", ()), where),
        _texts(table.get("exclude", ()), where),
        _one_of(SEVERITIES, table.get("severity", "info"), "severity", where),
        tuple((pattern, codes_of(codes, where)) for pattern, codes in per_file.items()),
    )


def codes_of(values: Any, where: str) -> tuple[str, ...]:
    """Codes, or beginnings of codes, that exist."""
    found = tuple(value.upper() for value in _texts(values, where))
    for code in found:
        if not any(rule.startswith(code) for rule in RULES):
            raise InvalidOption(f"Unknown rule in {where}. Received: {code!r}. Expected such as 'FO101' or 'FO1'.")
    return found


def _texts(values: Any, where: str) -> tuple[str, ...]:
    if isinstance(values, str):
        values = values.split(",")
    if not isinstance(values, Iterable) or not all(isinstance(value, str) for value in values):
        raise InvalidOption(f"Expected a list of texts in {where}. Received: {values!r}.")
    return tuple(value.strip() for value in values if value.strip())


def _one_of(choices: Sequence[str], value: Any, what: str, where: str) -> Any:
    if value not in choices:
        raise InvalidOption(f"Unknown {what} in {where}. Received: {value!r}. Expected: {', '.join(choices)}.")
    return value


def current_backend() -> Backend:
    """The backend that Keras would choose, without importing it: KERAS_BACKEND, keras.json, else tensorflow."""
    named = os.environ.get("KERAS_BACKEND") or configured_backend()
    return named if named in BACKENDS else "tensorflow"
