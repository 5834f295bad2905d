"""Every rule, in the spellings that people use: the codes that a line's `# expect:` comment names, and no others."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections import Counter
from pathlib import Path

import pytest

from flatout.check.examining.examine import check_paths
from flatout.check.rules.catalogue import RULES
from flatout.check.rules.rule import BACKENDS, Backend, Finding

pytestmark = pytest.mark.backend("jax")  # The source is read, not run.
_CASES = Path(__file__).parent / "cases"
_FILES = sorted(path for path in _CASES.glob("*.py") if path.name != "clean.py")


def _expected(path: Path) -> dict[int, list[str]]:
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := re.search(r"# expect: (.*)$", line):
            found[number] = [code.strip() for code in match[1].split(",")]
    return found


def _by_line(findings: list[Finding]) -> dict[int, list[Finding]]:
    found: dict[int, list[Finding]] = {}
    for one in findings:
        found.setdefault(one.line, []).append(one)
    return found


@functools.cache
def _on_torch() -> list[Finding]:
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        found = check_paths(_FILES, "torch")
    assert told.getvalue() == "", "a function was not examined"
    return found


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_lines_have_the_findings_that_they_should(path: Path) -> None:
    expected, found = _expected(path), _by_line([one for one in _on_torch() if Path(one.path) == path])
    for line in sorted({*expected, *found}):
        wanted = expected.get(line, [])
        here = found.get(line, [])
        codes = Counter(one.code for one in here)
        assert not Counter(code.split()[0] for code in wanted) - codes, f"{path.name}:{line}: missing, found {codes}"
        loud = Counter(one.code for one in here if one.severity != "info")
        quiet = {code.split()[0] for code in wanted if code.endswith(" info")}
        assert not loud - Counter(wanted), f"{path.name}:{line}: {[one.message for one in here]}"
        assert not quiet & set(loud), f"{path.name}:{line}"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_codes_do_not_depend_on_the_backend_only_severities_do(backend: Backend) -> None:
    def places(found: list[Finding]) -> set[tuple[str, str, int, int]]:
        return {(one.code, one.path, one.line, one.column) for one in found}

    assert places(check_paths(_FILES, backend)) == places(_on_torch())


def test_the_cases_cover_nearly_every_rule() -> None:
    covered = {code.split()[0] for path in _FILES for codes in _expected(path).values() for code in codes}
    assert set(RULES) - covered == set()


def _severity(text: str, code: str, tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "case.py"
    path.write_text(text)
    return {b: next(one.severity for one in check_paths([path], b) if one.code == code) for b in BACKENDS}


_HEAD = "import keras\nimport numpy as np\nfrom keras import ops\n\n\n"


@pytest.mark.parametrize(
    ("code", "body", "severities"),
    [
        ("FO101", "    return sum(ops.mean(t - p) for t, p in zip(y_true, y_pred))", ("slow", "error", "slow")),
        ("FO101", "    return sum(ops.mean(y_pred[i]) for i in range(y_pred.shape[0]))", ("slow", "slow", "slow")),
        ("FO201", "    return ops.mean(y_pred) / float(ops.max(y_true))", ("error", "error", "slow")),
        ("FO202", "    return y_pred if ops.max(y_true) > 0 else ops.abs(y_pred)", ("error", "error", "slow")),
        ("FO108", "    return ops.mean(y_pred[y_true > 0])", ("error", "slow", "slow")),
        ("FO304", "    return ops.mean(y_pred) * np.random.normal()", ("wrong", "wrong", "info")),
        ("FO302", "    return keras.Variable(1.0) * ops.mean(y_pred)", ("error", "error", "error")),
        ("FO206", "    return ops.mean(y_pred) * np.load('w.npy')", ("wrong", "wrong", "slow")),
        ("FO501", "    return ops.mean(ops.round(y_pred))", ("wrong", "error", "error")),
    ],
)
def test_severity_is_that_of_the_backend(code: str, body: str, severities: tuple[str, ...], tmp_path: Path) -> None:
    found = _severity(f"{_HEAD}def loss(y_true, y_pred):\n{body}\n", code, tmp_path)
    assert tuple(found[backend] for backend in BACKENDS) == severities


def test_a_short_class_loop_is_info_and_a_long_one_is_slow(tmp_path: Path) -> None:
    body = "    return sum(ops.mean(y_pred[:, c]) for c in range({}))"
    for count, severity in ((3, "info"), (100, "slow")):
        text = f"{_HEAD}def loss(y_true, y_pred):\n{body.format(count)}\n"
        assert set(_severity(text, "FO104", tmp_path).values()) == {severity}


def test_helpers_are_followed_across_files_and_packages(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'p'\n")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from .rows import total\n")
    (package / "rows.py").write_text(
        "from keras import ops\n\n\ndef total(a, b):\n    return sum(ops.mean(a[i] - b[i]) for i in "
        "range(a.shape[0]))\n"
    )
    (tmp_path / "shared.py").write_text("from package import total\n")
    main = tmp_path / "main.py"
    main.write_text(
        "import shared\n\n\ndef my_loss(y_true, y_pred):\n    return shared.total(y_true, y_pred)\n\n\nimport keras\n"
    )
    (found,) = check_paths([main], "jax")
    assert (found.code, Path(found.path).name, found.line, found.function) == ("FO101", "rows.py", 5, "my_loss")
    assert check_paths([package / "rows.py"], "jax") == []


@pytest.mark.parametrize(
    ("code", "text", "advice"),
    [
        (
            "FO101",
            "noise = keras.random.normal(y_pred[i].shape); rows.append(ops.sum(y_pred[i] + noise))",
            "order of the draws",
        ),
        ("FO101", "rows.append(y_pred[i] - y_pred[i - 1])", "ops.roll"),
        ("FO101", "rows.append(rounded(y_pred[i]) - y_true[i])", "gradient that the user defined"),
        ("FO101", "rows.append(ops.cast(y_pred[i], 'float64'))", "float64"),
    ],
)
def test_what_must_not_be_mapped_is_refused_with_its_reason(code: str, text: str, advice: str, tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(
        f"{_HEAD}@ops.custom_gradient\ndef rounded(x):\n    return ops.round(x), lambda *args, upstream=None: "
        "upstream\n\n\n"
        f"def loss(y_true, y_pred):\n    rows = []\n    for i in range(y_pred.shape[0]):\n        {text}\n"
        "    return ops.mean(ops.stack(rows))\n"
    )
    (found,) = [one for one in check_paths([path], "jax") if one.code == code]
    assert advice in found.fix


def test_a_model_input_in_a_loss_is_answered_with_compute_loss(tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(
        f"{_HEAD}model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])\n\n\n"
        "def loss(y_true, y_pred):\n    return ops.mean((1 + model.input) * ops.square(y_true - y_pred))\n"
    )
    (found,) = check_paths([path], "jax")
    assert "compute_loss" in found.fix
    assert "declared as an Input" in found.fix
