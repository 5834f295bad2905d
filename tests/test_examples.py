"""The examples print the same under `python` and under `python -m flatout`, to the last printed digit or nearly so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import run

EXAMPLES = Path(__file__).parents[1] / "examples"
TIMES = re.compile(r"\d+m?s - \d+[mu]?s/(step|epoch) - ")
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def words_and_numbers(printed: str) -> tuple[str, list[float]]:
    printed = TIMES.sub("", printed)
    return " ".join(NUMBER.sub("#", printed).split()), [float(number) for number in NUMBER.findall(printed)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("functional_early_stopping.py", marks=pytest.mark.backend("jax")),
        pytest.param("custom_train_step.py", marks=pytest.mark.backend("torch")),
    ],
)
def test_an_example_prints_what_it_prints_under_plain_python(name: str, tmp_path: Path) -> None:
    plain, fast = (run(tmp_path, *way, str(EXAMPLES / name), timeout=280) for way in ((), ("-m", "flatout")))
    assert plain.returncode == fast.returncode == 0, plain.stderr + fast.stderr
    (words, numbers), (fast_words, fast_numbers) = words_and_numbers(plain.stdout), words_and_numbers(fast.stdout)
    assert fast_words == words
    assert fast_numbers == pytest.approx(numbers, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.py")), ids=lambda script: script.name)
def test_an_example_does_not_know_flatout(script: Path) -> None:
    assert not re.search(r"^\s*(import|from) flatout", script.read_text(), re.MULTILINE)
