"""The corpus of slow losses that stands beside the clone, or where FLATOUT_CORPUS says: what it expects, is found.

Every pair is reported with its codes, rewritten, and equal to what was recorded of the slow form; what must stay as it
is stays, and what has no rewrite is reported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatout
from flatout import cli
from flatout.vectorize.rewrite import rewrite_function
from flatout.vectorize.verify.gradients import value_and_gradient
from flatout.vectorize.verify.verification import find_recipes, verify

_ROOT = Path(__file__).parents[1]
_PLACES = (Path(os.environ.get("FLATOUT_CORPUS", "none")), _ROOT.parent / "shared/corpus", _ROOT / "shared/corpus")
_CORPUS = next((place for place in _PLACES if (place / "cases.py").is_file()), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        _CORPUS is None,
        reason="The corpus of slow losses is not there: no shared/corpus beside the clone, no FLATOUT_CORPUS.",
    ),
]
_RUNNABLE = 24
_VALUE, _SLOPE = 2e-5, 2e-4
# On jax each operation of a slow form is compiled by itself, on tensorflow traced: up to a minute for each of these.
_MARKS = dict.fromkeys(("A7", "B6"), pytest.mark.backend("torch"))


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def _cases() -> Any:
    assert _CORPUS is not None
    return _module("corpus_cases", _CORPUS / "cases.py")


def _pairs() -> list[Any]:
    cases = [] if _CORPUS is None else _cases().CASES
    return [pytest.param(case, id=case.id, marks=_MARKS.get(case.id, ())) for case in cases]


@dataclass(frozen=True)
class Diagnosis:
    """A case of diagnose.md: its heading, the codes it asks for and accepts, and its code."""

    name: str
    codes: tuple[str, ...]
    also: tuple[str, ...]
    source: str


def _diagnoses(kind: str) -> list[Any]:
    if _CORPUS is None:
        return []
    text = (_CORPUS / "diagnose.md").read_text()
    found = []
    for section in re.split(r"^### ", text, flags=re.M)[1:]:
        said, _, also = section.split("```")[0].split("Source")[0].partition(", also ")
        blocks = re.findall(r"```python\n(.*?)```", section, re.S)
        name = section.split(".")[0].split(",")[0]
        if name.startswith(kind) and blocks:
            codes = tuple(re.findall(r"FO\d{3}", said)), tuple(re.findall(r"FO\d{3}", also))
            found.append(pytest.param(Diagnosis(name, *codes, blocks[0]), id=name))
    return found


def _reported(capsys: pytest.CaptureFixture[str], path: Path, backend: str) -> list[dict[str, Any]]:
    cli.main(["check", str(path), "--format", "json", "--isolated", "--backend", backend])
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def _assert_codes(rows: list[dict[str, Any]], codes: Any, also: Any, about: str) -> None:
    found = {row["code"] for row in rows}
    loud = {row["code"] for row in rows if row["severity"] != "info"}
    for wanted in codes:
        assert found & set(wanted.split("|")), f"{about}: {wanted} is missing among {sorted(found)}"
    extra = loud - set("|".join([*codes, *also]).split("|"))
    assert not extra, f"{about}: {sorted(extra)} are false alarms"


@pytest.mark.backend("jax")  # The source is read, not run.
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_every_pair_is_reported_with_its_codes(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _cases().export(tmp_path)
    capsys.readouterr()
    rows = _reported(capsys, tmp_path, backend)
    assert len(_cases().CASES) == _RUNNABLE
    for case in _cases().CASES:
        mine = [row for row in rows if Path(row["path"]).stem == case.id]
        _assert_codes(mine, case.codes, case.also, f"{case.id} on {backend}")
        assert all(row["fix"] for row in mine), f"{case.id}: a finding without advice"


@pytest.mark.turns(4)
@pytest.mark.parametrize("case", _pairs())
def test_the_rewrite_equals_what_was_recorded(case: Any) -> None:
    cases = _cases()
    quick = flatout.vectorize(case.slow)
    if case.fix == "suggest-only":
        assert not quick.applied, quick.source
        return  # Reported with advice, and left alone.
    if cases.BACKEND == "jax":
        assert quick.applied, quick.reason  # Proven on small arrays first, which is sooner done there.
    store = np.load(cases.REFERENCE, allow_pickle=False)
    # Compiling, and running the slow form operation by operation, is what takes long: there one size is enough.
    for size in case.sizes if cases.BACKEND == "torch" else case.sizes[:1]:
        values, wanted = cases.recorded(store, case, size)
        # As in `fit`, where the loss is called before it is asked for anything: proven for arrays of these sizes.
        found = cases.evaluate(case, quick, values)
        assert quick.applied, f"{quick.reason}\n{quick.source}"
        assert cases.compare(case, found, wanted) == ""


@pytest.mark.backend("torch")
@pytest.mark.parametrize("case", _pairs())
def test_the_code_alone_says_for_which_arrays(case: Any) -> None:
    quick = flatout.vectorize(case.slow)
    assert quick.applied is (case.fix != "suggest-only"), f"{quick.reason}\n{quick.source}"


def test_the_rewrite_with_a_wrong_gradient_is_rejected() -> None:
    case = _cases().B1
    ranks = {"y_true": 1, "y_pred": 2}
    made = rewrite_function(case.slow, ranks)
    # It takes labels as integers alone.
    recipes = [one for one in find_recipes(case.slow, ranks, "y_pred", made.hints) if not one.as_float]
    assert recipes
    verdict = verify(case.slow, case.naive, recipes)
    assert not verdict.equal
    assert "gradient" in verdict.reason


# What each N case may become. None: it stays as it is. A name: the function that it may equal.
_KEPT: dict[str, dict[str, str | None]] = {
    "N1": {"loss": None},
    "N3": {"loss": None},
    "N5": {"centered": "centered_right", "neighbour": "neighbour_right"},
    "N7": {"loss": None},
    "N9": {"loss": "loss"},
    "N11": {"loss": None},
}


@pytest.mark.parametrize("case", _diagnoses("N"))
def test_what_must_stay_stays(case: Diagnosis, tmp_path: Path) -> None:
    path = tmp_path / f"case_{case.name}.py"
    path.write_text(case.source)
    module = _module(path.stem, path)
    rng = np.random.default_rng(0)
    shape = (9,) if case.name == "N9" else (9, 4)
    arrays = {name: rng.normal(size=shape).astype("float32") for name in ("y_true", "y_pred")}
    for name, right in _KEPT[case.name].items():
        original = getattr(module, name)
        quick = flatout.vectorize(original)
        if right is None:
            assert not quick.applied, quick.source
            assert quick.reason
            continue
        if case.name == "N9":
            arrays["y_pred"] = np.float32(1000 + 0.1 * np.random.default_rng(0).normal(size=64))
            arrays["y_true"] = np.zeros_like(arrays["y_pred"])
        value, gradient = value_and_gradient(getattr(module, right), arrays, "y_pred")
        other, slope = value_and_gradient(quick, arrays, "y_pred")
        np.testing.assert_allclose(other, value, rtol=_VALUE, err_msg=name)
        assert gradient is not None
        assert slope is not None
        np.testing.assert_allclose(slope, gradient, atol=_SLOPE * np.abs(gradient).max(), err_msg=name)


@pytest.mark.backend("jax")
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
@pytest.mark.parametrize("case", [*_diagnoses("X"), *_diagnoses("N"), *_diagnoses("E")])
def test_what_has_no_rewrite_is_reported(
    case: Diagnosis, backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"case_{case.name}.py"
    path.write_text(case.source)
    _assert_codes(_reported(capsys, path, backend), case.codes, case.also, f"{case.name} on {backend}")
