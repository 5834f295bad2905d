"""The demo's picture: whole, offline, and honest about stand-in data and differences."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from flatout.base.report import RunReport
from flatout.bench.comparison import Run
from flatout.bench.picture import Story, page, svg, write

HISTORY = {"loss": [0.5, 0.38, 0.33], "val_loss": [0.42, 0.39, 0.36]}
REPORT = RunReport("fit", True, "jax", "resident", 3, 2.0, ())
STORY = Story(
    stock=Run(HISTORY, [3.0, 5.0, 7.0], 7.1, REPORT, []),
    flatout=Run(HISTORY, [1.0, 1.5, 2.0], 2.0, REPORT, []),
    difference=0.0,
    setting="784-128-10 <&>",
    origin="/data",
    is_stand_in=False,
)


def test_nothing_is_fetched_from_anywhere() -> None:
    assert not re.findall(r"https?://|//[a-z]|<script|<link|@import|url\(", page(STORY))
    assert re.findall(r"https?://[^\"]+", svg(STORY, standalone=True)) == ["http://www.w3.org/2000/svg"]


def test_the_picture_is_well_formed() -> None:
    root = ElementTree.fromstring(svg(STORY, standalone=True))
    assert len(root.findall(".//{*}rect[@class='flatbar']")) == 3


def test_it_tells_the_gain_and_that_the_numbers_are_equal() -> None:
    assert "The same numbers, 3.5 times sooner" in page(STORY)
    assert "bit for bit" in page(STORY)


def test_a_difference_is_stated() -> None:
    text = page(replace(STORY, difference=3e-7))
    assert "two histories: 3e-07" in text
    assert "bit for bit" not in text


def test_stand_in_data_are_marked() -> None:
    text = svg(replace(STORY, origin="generated stand-in, not Fashion-MNIST", is_stand_in=True))
    assert re.search(r'class="warn[^"]*"[^>]*>Data: generated stand-in', text)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e4])
def test_any_duration_gets_a_few_ticks(factor: float, tmp_path: Path) -> None:
    stock = replace(STORY.stock, epoch_ends=[end * factor for end in STORY.stock.epoch_ends], seconds=7.1 * factor)
    files = write(replace(STORY, stock=stock), tmp_path / "new" / "folder")
    assert [file.name for file in files] == ["demo.svg", "demo.html"]
    ticks = re.findall(r'class="axis" d="M[\d.]+ 506v5"', files[0].read_text())
    assert 1 <= len(ticks) <= 8
