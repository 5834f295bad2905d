"""Rows of folds and subsets: each row once, by whatever splitter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flatout
from flatout.many.splits import KFold, folds_of, subsets_of

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")


@given(st.integers(2, 60), st.integers(2, 9), st.booleans(), st.data())
def test_each_row_is_held_out_once(rows: int, count: int, stratified: bool, data: st.DataObject) -> None:
    count = min(count, rows)
    y = np.array(data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)))
    splits = folds_of(KFold(count, stratified=stratified), rows, y)
    assert [split.fold for split in splits] == list(range(count))
    held_out = [split.held_out for split in splits if split.held_out is not None]
    assert sorted(np.concatenate(held_out)) == list(range(rows))
    assert max(map(len, held_out)) - min(map(len, held_out)) <= 1
    for split in splits:
        assert split.train is not None
        assert split.held_out is not None
        assert sorted([*split.train, *split.held_out]) == list(range(rows))
        if stratified:
            shares = [np.mean(y[split.held_out] == label) * len(split.held_out) for label in range(3)]
            expected = [np.mean(y == label) * len(split.held_out) for label in range(3)]
            assert np.abs(np.subtract(shares, expected)).max() < 2


def test_splitters_of_scikit_learn_say_which_rows() -> None:
    from sklearn.model_selection import StratifiedKFold

    y = np.repeat([0, 1, 2], [6, 9, 15])
    splitter = StratifiedKFold(3, shuffle=True, random_state=1)
    for split, (train, held_out) in zip(folds_of(splitter, 30, y), splitter.split(y, y), strict=True):
        assert split.train is not None
        assert split.held_out is not None
        assert split.train.tolist() == train.tolist()
        assert split.held_out.tolist() == held_out.tolist()


@given(st.integers(1, 40), st.integers(1, 8))
def test_disjoint_subsets_share_out_all_rows(rows: int, models: int) -> None:
    models = min(models, rows)
    parts = [split.train for split in subsets_of("disjoint", models, rows) if split.train is not None]
    assert len(parts) == models
    assert sorted(np.concatenate(parts)) == list(range(rows))


@pytest.mark.parametrize(
    ("folds", "said"),
    [
        (1, "from 2 to"),
        (11, "from 2 to"),
        ([([0, 1], [10])], "0 to 9"),
        ([([], [1])], "fold 0"),
        ([[0, 1, 2]], "pair"),
        ([], "no folds"),
        (object(), "splitter"),
        (KFold(2, stratified=True), "label"),
    ],
)
def test_what_is_no_fold_is_refused(folds: Any, said: str) -> None:
    with pytest.raises(flatout.InvalidOption, match=said):
        folds_of(folds, 10, None)


@pytest.mark.parametrize(("subsets", "said"), [("all", "disjoint"), ([[0]], "2 models"), ([[0], [0.5]], "subset 1")])
def test_what_is_no_subset_is_refused(subsets: Any, said: str) -> None:
    with pytest.raises(flatout.InvalidOption, match=said):
        subsets_of(subsets, 2, 10)
    with pytest.raises(flatout.InvalidOption, match="rows of their own"):
        subsets_of("disjoint", 11, 10)
