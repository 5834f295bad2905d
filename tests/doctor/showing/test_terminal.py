from __future__ import annotations

import io

import doctor_cases
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from flatout.doctor.diagnosis_facts import Gain, Interval
from flatout.doctor.showing.terminal import as_text, clean, duration, gain_in_words, percent, place, show, spread

pytestmark = pytest.mark.backend("jax")


def test_text_says_the_verdict_the_budget_the_findings_and_the_plan() -> None:
    text = as_text(doctor_cases.diagnosis())
    for expected in (
        "input-bound",
        "Training waits for its input",
        "A step takes 41.2 ms (39.8 to 43.0).",
        "Best change: 3.1x faster (2.8 to 3.4), measured (FO901).",
        "Input: the next batch  66 %  27.4 ms  26.1 to 28.9",
        "not separable from noise",
        "Validation",
        "FO911  A callback reads the logs after every batch",
        "examples/forecast/callbacks.py:17",
        "at most 3x faster",
        "`python -m flatout` does this by itself.",
        "The data go to the device once, 655 MB.",
        "Several GPUs: this machine has one.",
        "The diagnosis took 18.6 s.",
    ):
        assert expected in text
    assert "\x1b" not in text
    assert text == str(doctor_cases.diagnosis())


def test_bar_has_as_many_blocks_of_a_part_as_its_share() -> None:
    bar = as_text(doctor_cases.diagnosis()).split("Where a step goes\n")[1].splitlines()[0]
    assert len(bar) == 76
    assert bar.startswith("█" * 50 + "░")


def test_empty_sections_are_left_out() -> None:
    text = as_text(doctor_cases.bare())
    assert "Noise hides every part of the step." in text
    assert "A step takes 400 µs." in text
    assert "Where" not in text
    assert "change" not in text
    assert "Not checked" not in text


def _shown(case: str, width: int, encoding: str, colours: bool) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    console = Console(file=file, width=width, force_terminal=colours, color_system="truecolor" if colours else None)
    show(getattr(doctor_cases, case)(), console)
    file.seek(0)
    return file.read()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
@pytest.mark.parametrize(("case", "width"), [("diagnosis", 40), ("hostile", 40), ("bare", 40), ("diagnosis", 100)])
def test_no_terminal_is_too_narrow_or_too_old(case: str, width: int, encoding: str) -> None:
    assert _shown(case, width, encoding, colours=True).strip()
    lines = _shown(case, width, encoding, colours=False).splitlines()
    assert 0 < max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [1, 5, 12])
def test_a_terminal_of_no_use_is_no_error(width: int) -> None:
    assert _shown("diagnosis", width, "utf-8", colours=True).strip()


def test_old_terminal_has_a_bar_of_plain_characters() -> None:
    text = _shown("diagnosis", 100, "ascii", colours=False)
    assert "#" * 50 + "." in text
    assert "900 us" in text
    assert "?" not in text


def test_markup_and_control_sequences_are_text() -> None:
    text = as_text(doctor_cases.hostile())
    assert "[bold]x[/]" in text
    assert "[link=http://example.com]y[/link]" in text
    assert "\\x1b[31mred\\x07" in text
    assert not {"\x1b", "\x07", "\u202e", "\udcff"} & set(text)
    assert "\x1b]8" not in _shown("hostile", 100, "utf-8", colours=True)  # a link


@settings(deadline=None, max_examples=40)
@given(st.text())
def test_any_text_is_shown_and_none_steers_the_terminal(text: str) -> None:
    shown = as_text(doctor_cases.filled(text))
    shown.encode()
    assert clean(shown) == shown
    assert clean(clean(text)) == clean(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (4.2e-7, "0.42 µs"),
        (0.00064, "640 µs"),
        (0.0009999, "1.00 ms"),
        (0.0412, "41.2 ms"),
        (0.9999, "1.00 s"),
        (-0.0001, "-100 µs"),
        (1234.5, "1,234 s"),
    ],
)
def test_durations_have_the_unit_that_suits_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_spread_is_in_the_unit_of_the_middle() -> None:
    assert spread(Interval(0.0009, 0.0011, 0.0012)) == "0.90 to 1.20"
    assert spread(Interval(1.0, 1.0, 1.0)) == ""


def test_gains_say_how_they_are_known() -> None:
    assert gain_in_words(Gain(3.14, 2.8, 3.4, True)) == "3.1x faster (2.8 to 3.4), measured"
    assert gain_in_words(Gain(64.4, 64.4, 64.4, True)) == "64x faster, measured"
    assert gain_in_words(Gain(2.0, 1.0, 3.0, False)) == "about 2x faster, at most 3x"
    assert gain_in_words(Gain(0.98, 0.9, 1.1, True)) == "no faster, measured"
    assert gain_in_words(Gain(120.0, 100.0, 1400.0, True)) == "120x faster (100 to 1,400), measured"


def test_places_and_shares() -> None:
    assert (place("train.py", 3), place("train.py", 0), place("", 3)) == ("train.py:3", "train.py", "")
    assert (percent(0.664), percent(0.001), percent(0)) == ("66 %", "under 1 %", "0 %")
