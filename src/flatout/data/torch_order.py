"""torch's random order as an array: the draws of its `RandomSampler`, without a Python number for each row."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler


class _Permutation(Sampler[Any]):
    """One batch of all rows."""

    def __init__(self, rows: int):
        self._rows = rows

    def __iter__(self) -> Iterator[np.ndarray]:
        yield _permutation(self._rows)

    def __len__(self) -> int:
        return 1


def in_one_piece(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A loader whose first batch is all rows in the order that this one would give; itself if nobody can say that.

    Args:
        loader: Of Keras, over all rows in one batch. It makes a Python number of each row, and a list of them.
    """
    sampler: Any = getattr(loader.batch_sampler, "sampler", None)
    is_plain = type(sampler) is RandomSampler and not sampler.replacement and sampler.generator is None
    if not is_plain or not _draws_alike():
        return loader
    return DataLoader(loader.dataset, batch_sampler=_Permutation(len(sampler)), collate_fn=loader.collate_fn)


def _permutation(rows: int) -> np.ndarray:
    generator = torch.Generator()
    generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    return torch.randperm(rows, generator=generator).numpy()


@functools.cache
def _draws_alike() -> bool:
    """Whether the installed torch draws as we do: the order, and what is left in the generator."""
    rows, before = 1000, torch.get_rng_state()
    try:
        expected, left = list(RandomSampler(range(rows))), torch.get_rng_state()
        torch.set_rng_state(before)
        return _permutation(rows).tolist() == expected and torch.equal(torch.get_rng_state(), left)
    finally:
        torch.set_rng_state(before)
