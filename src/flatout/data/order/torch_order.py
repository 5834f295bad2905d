"""torch's random order as an array: the draws of its `RandomSampler`, without a Python number for each row."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler

from .drawn_ahead import DrawnAhead


class _Permutation(Sampler[Any]):
    """One batch of all rows."""

    def __init__(self, rows: int, drawn_ahead: TorchDrawnAhead):
        self._rows = rows
        self._drawn_ahead = drawn_ahead

    def __iter__(self) -> Iterator[np.ndarray]:
        yield self._drawn_ahead.permutation(self._rows)

    def __len__(self) -> int:
        return 1


def in_one_piece(loader: DataLoader[Any], drawn_ahead: DrawnAhead) -> DataLoader[Any]:
    """A loader whose first batch is all rows in the order that this one would give; itself if nobody can say that.

    That of Keras makes a Python number of each row, and a list of them.
    """
    sampler: Any = getattr(loader.batch_sampler, "sampler", None)
    is_plain = type(sampler) is RandomSampler and not sampler.replacement and sampler.generator is None
    if not isinstance(drawn_ahead, TorchDrawnAhead) or not is_plain or not _draws_alike():
        return loader
    return DataLoader(
        loader.dataset, batch_sampler=_Permutation(len(sampler), drawn_ahead), collate_fn=loader.collate_fn
    )


class TorchDrawnAhead(DrawnAhead):
    """Foresees permutations, each of which comes from a seed that torch draws for it alone.

    Between now and then torch draws other seeds too, one for every iterator of a loader: as many as the last time.
    """

    _DRAWS = 8

    def __init__(self) -> None:
        super().__init__()
        self._seeds: list[int] = []
        self._number = 2

    def look(self, rows: int) -> None:
        if torch.get_default_device().type != "cpu":
            return  # Seeds come from another generator then.
        before = torch.get_rng_state()
        seeds = [_seed() for _ in range(self._DRAWS)]
        torch.set_rng_state(before)
        if self._drawing is None or seeds != self._seeds:
            self._seeds = seeds
            self._start(functools.partial(_shuffled, rows, seeds[self._number]))

    def permutation(self, rows: int) -> np.ndarray:
        """Draw a permutation."""
        seed = _seed()
        order = self._result()
        expected = self._seeds[self._number] if self._seeds else None
        if seed in self._seeds:
            self._number = self._seeds.index(seed)
        self._seeds = []
        return order if order is not None and seed == expected and len(order) == rows else _shuffled(rows, seed)


def _seed() -> int:
    return int(torch.empty((), dtype=torch.int64).random_().item())


def _shuffled(rows: int, seed: int) -> np.ndarray:
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.randperm(rows, generator=generator).numpy()


@functools.cache
def _draws_alike() -> bool:
    """Whether the installed torch draws as we do: the order, and what is left in the generator."""
    rows, before = 1000, torch.get_rng_state()
    try:
        expected, left = list(RandomSampler(range(rows))), torch.get_rng_state()
        torch.set_rng_state(before)
        return _shuffled(rows, _seed()).tolist() == expected and torch.equal(torch.get_rng_state(), left)
    finally:
        torch.set_rng_state(before)
