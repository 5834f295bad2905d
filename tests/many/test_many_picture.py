"""The picture of many models: whole XML, a curve for each, the best one on top, and pages that need no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import flatout
from flatout.many.candidate import Candidate
from flatout.many.many import Many, is_more_better
from flatout.many.splits import Split

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")

NAN = float("nan")


def many(*curves: list[float], **point: Any) -> Many:
    candidates = []
    for number, curve in enumerate(curves):
        one = Candidate(number, {"rate": 10.0**-number, **point}, 0, Split(), generators=None)  # type: ignore[arg-type]
        one.history = {"val_loss": curve, "accuracy": [1 - value for value in curve]}
        candidates.append(one)
    return Many(candidates, {})


def test_it_has_a_curve_for_each_model_and_the_best_on_top() -> None:
    picture = many([0.9, 0.5], [0.8, NAN], [0.7, 0.6, 0.4], name="<a&b>").plot()
    root = ElementTree.fromstring(picture.svg())
    kinds = [path.get("class") for path in root.iter("{http://www.w3.org/2000/svg}path")]
    assert [kind for kind in kinds if kind in ("one", "best")] == ["one", "one", "one", "best"]
    assert "rate 0.01" in picture.svg()
    assert "NaN" not in picture.svg()
    assert "nan" not in picture.svg()


def test_the_best_by_any_epoch_comes_first_and_no_number_last() -> None:
    found = many([0.9, 0.2, 0.8], [NAN], [0.3, 0.3], [])
    assert found.ranked("val_loss")[:2] == [0, 2]
    assert found.best("accuracy") == 0
    assert found.best("accuracy", mode="min") == 0
    with pytest.raises(flatout.InvalidOption, match="that is a number"):
        many([NAN]).best("val_loss")
    with pytest.raises(flatout.InvalidOption, match="mode"):
        found.best("val_loss", mode="least")


def test_a_page_has_the_results_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    many([0.9], [0.5], name="<script>").plot("val_loss", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=", page)
    with pytest.raises(flatout.InvalidOption, match="ends in"):
        many([0.9]).plot(path=tmp_path / "a.png")


@pytest.mark.parametrize(
    ("metric", "more"),
    [
        *((name, True) for name in ("val_mean_io_u", "fbeta_score", "sensitivity_at_specificity", "accuracy")),
        *((name, False) for name in ("val_loss", "mean_absolute_error", "seconds")),
    ],
)
def test_metrics_of_keras_are_judged_the_right_way_round(metric: str, more: bool) -> None:
    assert is_more_better(metric) == more
