"""`make scripts`: what its runner calls the same, what it calls different, and one of our scripts through it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_run import RecordedRun, named_backend
from sameness import difference, shown
from scripts import run

ROOT = Path(__file__).parents[1]
RUNNER, SCRIPTS = ROOT / "benchmarks" / "script_runner", ROOT / "examples" / "scripts"
ABOUT_FILES = pytest.mark.backend("jax")
BAR = "\r\x1b[1m{}/4\x1b[0m \x1b[32m━━━━\x1b[0m \x1b[1m{}s\x1b[0m {}ms/step - loss: {}"


def compared(folder: Path, *paths: Path, backend: str) -> tuple[int, dict[str, dict[str, Any]]]:
    results = folder / "results.json"
    done = run(folder, str(RUNNER), *map(str, paths), "--backends", backend, "--json", str(results), timeout=280)
    assert results.exists(), done.stderr
    return done.returncode, {one["script"]: one for one in json.loads(results.read_text())}


def a_run(printed: str = "", exit_code: int = 0, **history: list[float]) -> RecordedRun:
    fits = [{"process": "MainProcess", "epochs": [0], "history": history}] if history else []
    return RecordedRun(exit_code, printed, 1.0, "", fits)


@ABOUT_FILES
def test_durations_and_unfinished_bars_are_no_difference() -> None:
    slow = f"Epoch 1/1\n{BAR.format(1, 9, 80, '0.9000')}{BAR.format(4, 2, 81, '0.5000')}\n"
    fast = f"Epoch 1/1\n{BAR.format(4, 0, 7, '0.5000')}\n"
    assert shown(slow) == shown(fast) == ["Epoch 1/1", "4/4 ━━━━ #s #s - loss: 0.5000"]


@ABOUT_FILES
def test_a_bar_that_a_callback_interrupted_does_not_count() -> None:
    final = f"{BAR.format(4, 1, 3, '0.5000')} - val_loss: 0.4000\n"
    seen_at_three = f"{BAR.format(3, 0, 5, '0.7000')}\nEpoch 1: val_loss improved\n{final}"
    seen_at_four = f"{BAR.format(4, 0, 5, '0.6000')}\nEpoch 1: val_loss improved\n{final}"
    on_its_line = f"{BAR.format(2, 0, 5, '0.7000')}Epoch 1: val_loss improved\n{final}"
    assert shown(seen_at_three) == shown(seen_at_four) == shown(on_its_line)
    assert shown(final)[0] in shown(on_its_line)


@ABOUT_FILES
def test_another_loss_is_a_difference_to_the_last_bit_or_beyond_the_tolerance() -> None:
    one, near, far = (a_run(loss=[value]) for value in (0.5, 0.50001, 0.6))
    assert difference(one, one, 0.0) == ""
    assert difference(one, near, 1e-3) == ""
    assert difference(one, near, 0.0) == "fit 1: loss 0.5 and 0.50001"
    assert difference(one, far, 1e-3) == "fit 1: loss 0.5 and 0.6"
    assert difference(a_run(loss=[float("nan")]), a_run(loss=[float("nan")]), 0.0) == ""
    assert difference(one, a_run(), 0.0) == "1 and 0 fits"


@ABOUT_FILES
def test_other_words_lines_and_exit_codes_are_differences() -> None:
    assert difference(a_run("accuracy 0.91"), a_run("accuracy 0.9101"), 1e-3) == ""
    assert difference(a_run("a cat"), a_run("a dog"), 1e-3) == "printed 'a cat' and 'a dog'"
    assert difference(a_run("a\nb"), a_run("a"), 0.0) == "printed 2 and 1 lines, from 'b' on"
    assert difference(a_run(exit_code=1), a_run(), 0.0) == "exit code 1 and 0"


@ABOUT_FILES
@pytest.mark.parametrize(
    ("line", "backend"),
    [
        ('os.environ["KERAS_BACKEND"] = "jax"', "jax"),
        ("os.environ.setdefault('KERAS_BACKEND', 'torch')", "torch"),
        ('keras.config.set_backend("tensorflow")', "tensorflow"),
        ('print(os.environ["KERAS_BACKEND"])', None),
    ],
)
def test_a_script_may_name_its_backend(line: str, backend: str | None, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(line)
    assert named_backend(script) == backend


@ABOUT_FILES
def test_a_script_that_differs_is_told_from_one_that_is_not_repeatable(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "differs.py").write_text("import sys; print('flatout' in sys.modules)")
    (scripts / "random.py").write_text("import os; print(os.getpid())")
    (scripts / "fails.py").write_text("raise SystemExit(3)")
    (scripts / "elsewhere.py").write_text("import os; os.environ['KERAS_BACKEND'] = 'torch'")
    code, results = compared(tmp_path, scripts, backend="jax")
    assert {name: one["verdict"] for name, one in results.items()} == {
        "differs.py": "differs",
        "random.py": "not repeatable",
        "fails.py": "fails",
    }
    assert code == 1
    assert results["differs.py"]["difference"] == "printed 'False' and 'True'"
    assert results["fails.py"]["exit_code"] == 3


@ABOUT_FILES
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_script_of_ours_comes_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("FLATOUT_FORCE", "1")
    code, results = compared(tmp_path, SCRIPTS / "callbacks_tour.py", backend=backend)
    one = results["callbacks_tour.py"]
    assert (one["verdict"], one["difference"], one["fits"], code) == ("equal", "", 1, 0)


@ABOUT_FILES
def test_there_are_thirty_scripts_and_each_is_seeded() -> None:
    scripts = sorted(SCRIPTS.glob("*.py"))
    assert len(scripts) >= 30
    assert [script.name for script in scripts if "keras.utils.set_random_seed(" not in script.read_text()] == []
