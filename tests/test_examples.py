"""The examples print the same under `python` and under `python -m flatout`, to the last printed digit or nearly so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import run

EXAMPLES = Path(__file__).parents[1] / "examples"
TIMES = re.compile(r"\d+m?s - \d+[mu]?s/(step|epoch) - ")
# What these show has little to do with the backend.
ONCE = pytest.mark.backend("jax")
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def words_and_numbers(printed: str) -> tuple[str, list[float]]:
    printed = TIMES.sub("", printed)
    return " ".join(NUMBER.sub("#", printed).split()), [float(number) for number in NUMBER.findall(printed)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["functional_early_stopping.py"], marks=ONCE),
        pytest.param(["custom_train_step.py"], marks=pytest.mark.backend("torch")),
        pytest.param(["slow_generator.py", "--wait", "0.005", "--steps", "12", "--epochs", "2"], marks=ONCE),
        pytest.param(["parallel_models.py", "--epochs", "2", "--rows", "1000", "--widths", "8", "16"], marks=ONCE),
    ],
    ids=lambda command: command[0],
)
def test_an_example_prints_what_it_prints_under_plain_python(command: list[str], tmp_path: Path) -> None:
    script = [str(EXAMPLES / command[0]), *command[1:]]
    plain, fast = (run(tmp_path, *way, *script, timeout=280) for way in ((), ("-m", "flatout")))
    assert plain.returncode == fast.returncode == 0, plain.stderr + fast.stderr
    (words, numbers), (fast_words, fast_numbers) = words_and_numbers(plain.stdout), words_and_numbers(fast.stdout)
    assert fast_words == words
    assert fast_numbers == pytest.approx(numbers, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.py")), ids=lambda script: script.name)
def test_an_example_does_not_know_flatout(script: Path) -> None:
    assert not re.search(r"^\s*(import|from) flatout", script.read_text(), re.MULTILINE)
