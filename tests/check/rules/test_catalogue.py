"""The pages of the rules: code that is found before and silent after, and that runs."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from flatout.check.examining.examine import check_paths
from flatout.check.rules import catalogue
from flatout.check.rules.catalogue import RULES
from flatout.check.rules.rule import BACKENDS, SEVERITIES

pytestmark = pytest.mark.backend("jax")  # The rules are the same for all of them.
_DOCS = Path(__file__).parents[3] / "docs"


def _blocks(code: str) -> list[str]:
    """The code of a page: as the rule finds it, and as it should be."""
    return re.findall(r"```python\n(.*?)```", RULES[code].page, re.DOTALL)


def test_the_list_of_rules_in_the_docs_has_all_of_them() -> None:
    text = " ".join((_DOCS / "losses.md").read_text().split())
    for code, rule in RULES.items():
        levels = ", ".join(f"{backend} {rule.severity(backend)}" for backend in BACKENDS)
        assert f"- [{code}](rules/{code}.md): {rule.summary} ({levels})" in text


def test_the_codes_are_those_of_the_design() -> None:
    wanted = [f"FO10{n}" for n in range(1, 9)] + [f"FO20{n}" for n in range(1, 7)] + [f"FO30{n}" for n in range(1, 9)]
    wanted += [f"FO40{n}" for n in range(1, 7)] + [f"FO50{n}" for n in range(1, 5)]
    assert list(RULES) == wanted
    for rule in RULES.values():
        assert {rule.severity(backend) for backend in BACKENDS} <= set(SEVERITIES)


def test_without_the_pages_nothing_is_checked(tmp_path: Path) -> None:
    alone = tmp_path / "src" / "flatout" / "check" / "rules" / "catalogue.py"
    alone.parent.mkdir(parents=True)
    shutil.copy(catalogue.__file__, alone)
    spec = importlib.util.spec_from_file_location("flatout.check.rules.alone", alone)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(RuntimeError, match="The pages of the rules are not there"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_an_installed_package_carries_the_pages() -> None:
    project = tomllib.loads((_DOCS.parent / "pyproject.toml").read_text())
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {_DOCS.parent / ours: _DOCS.parent / "src" / theirs for ours, theirs in carried.items()} == {
        catalogue._DOCS: catalogue._CARRIED
    }


@pytest.mark.parametrize("code", list(RULES))
def test_before_is_found_and_after_is_silent(code: str, tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    for path, text in zip((before, after), _blocks(code), strict=True):
        path.write_text(text)
    assert code in {one.code for one in check_paths([before], "torch")}
    assert not [one for one in check_paths([after], "torch") if one.severity != "info" or one.code == code]


@pytest.mark.parametrize("code", list(RULES))
def test_the_code_of_a_page_compiles_and_has_its_imports(code: str) -> None:
    for block in _blocks(code):
        compile(block, code, "exec")
        for name, line in (
            ("np.", "import numpy as np"),
            ("ops.", "from keras import ops"),
            ("keras.", "import keras"),
        ):
            assert name not in block or line in block or f"from {name}" in block


@pytest.mark.parametrize("code", list(RULES))
def test_the_code_of_a_page_runs(code: str) -> None:
    for block in _blocks(code):
        # TensorFlow takes seconds to import; tables are made by another part, whose tests run them.
        if "tensorflow" not in block and "flatout" not in block:
            exec(block, {"__name__": "page"})


@pytest.mark.parametrize(
    "code", ["FO101", "FO102", "FO103", "FO104", "FO105", "FO106", "FO108", "FO201", "FO202", "FO306"]
)
def test_after_computes_what_before_computes(code: str) -> None:
    import numpy as np

    rng = np.random.default_rng(1)
    # One target for three quantiles; elsewhere targets and outputs have one shape.
    y_true, y_pred = rng.normal(size=(6, 1 if code == "FO104" else 3)), rng.normal(size=(6, 3))
    values = []
    for text in _blocks(code):
        names: dict[str, object] = {}
        exec(text, names)
        values.append(float(names["loss"](y_true.astype("float32"), y_pred.astype("float32"))))  # type: ignore[operator]
    assert values[0] == pytest.approx(values[1], rel=1e-5)
