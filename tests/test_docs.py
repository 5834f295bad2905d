"""The documentation as people meet it: lines that fit a screen, an example before the first table, honest words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_PAGES = sorted([*_ROOT.glob("*.md"), *(_ROOT / "docs").rglob("*.md")])
_WITHOUT_EXAMPLE = {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "decisions.md"}


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_lines_fit_a_screen(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if len(line) > 120] == []


@pytest.mark.parametrize("page", [page for page in _PAGES if page.name not in _WITHOUT_EXAMPLE], ids=_name)
def test_an_example_stands_before_the_first_table(page: Path) -> None:
    text = page.read_text()
    table = re.search(r"^\|", text, re.MULTILINE)
    example = re.search(r"^(```|    \S)", text, re.MULTILINE)
    assert table is None or (example is not None and example.start() < table.start())


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_a_rewrite_is_verified_not_proven(page: Path) -> None:
    # Inputs, however many, prove nothing; the changelog says how it was called once.
    assert page.name == "CHANGELOG.md" or not re.search(
        r"\b(proof|proofs|prove|proves|proven|proved)\b", page.read_text()
    )
