"""Seeded randomness in a recorded step, with the very numbers that Keras draws.

Keras' torch backend makes a new generator for each seeded draw, seeded with the sum of the seed generator's state,
read on the host. In a recording one generator serves each place in the step, and a reseeding is written down before
the draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .recorder import Recorder


class Reseed:
    """Seeds the generator of one place in the step, as `torch_seed_generator` does."""

    def __init__(self, device: Any):
        self.generator = torch.Generator(device=device)

    def __call__(self, total: torch.Tensor | int) -> None:
        self.generator.manual_seed(int(total) & 0xFFFFFFFF)


class Reseeds:
    """The generators of a step, in the order in which it uses them; the same for every recording of it."""

    def __init__(self) -> None:
        self._all: list[Reseed] = []
        self._used = 0

    def restart(self) -> None:
        self._used = 0

    def next(self, device: Any) -> Reseed:
        if self._used == len(self._all):
            self._all.append(Reseed(device))
        self._used += 1
        return self._all[self._used - 1]


def recorded_seed_generator(recorder: Recorder, reseeds: Reseeds, original: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in for `keras.src.backend.torch.random.torch_seed_generator` while `recorder` records."""
    from keras.src.backend.torch.core import get_device
    from keras.src.random.seed_generator import draw_seed

    def torch_seed_generator(seed: Any) -> torch.Generator | None:
        if get_device() == "meta":
            return original(seed)
        if recorder.journals:
            recorder.fail("untraceable", "a seed is drawn inside a branch of ops.cond")
        reseed = reseeds.next(get_device())
        first, second = draw_seed(seed)
        total = first + second
        recorder.call(reseed, total)
        with _disable_current_modes():
            reseed(total)
        return reseed.generator

    return torch_seed_generator
