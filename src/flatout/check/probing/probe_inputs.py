"""Inputs to try a loss with: as the user describes them, or the first of the usual shapes that it runs with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.errors import InvalidOption

_COMMENT = re.compile(r"^#\s*(?:flatout:\s*)?inputs:\s*(?P<spec>.+)$", re.MULTILINE)
_ENTRY = re.compile(r"(?P<name>\w+)=(?P<dtype>[a-z]+\d*)\[(?P<shape>[\d,\s]*)\]")
# (true, pred): dtype and the axes behind the samples.
_USUAL: tuple[tuple[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]], ...] = (
    (("float32", (5,)), ("float32", (5,))),
    (("float32", (1,)), ("float32", (1,))),
    (("int32", ()), ("float32", (5,))),
    (("float32", ()), ("float32", ())),
    (("float32", (6, 5)), ("float32", (6, 5))),
    (("int32", (6,)), ("float32", (6, 5))),
    (("float32", (6, 6, 3)), ("float32", (6, 6, 3))),
    (("int32", (6, 6)), ("float32", (6, 6, 3))),
    (("float32", (1,)), ("float32", (3,))),
    (("int32", (5,)), ("int32", (5,))),
)


@dataclass(frozen=True)
class Inputs:
    """What the arrays of a call look like."""

    # Name, dtype and shape of each; its first axis is the samples' where it has `batch` entries.
    entries: tuple[tuple[str, str, tuple[int, ...]], ...]
    batch: int

    def draw(self, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Arrays for any number of samples; the same for the same seed."""
        rng = np.random.default_rng(seed)
        drawn = {}
        for name, dtype, shape in self.entries:
            size = (batch, *shape[1:]) if shape and shape[0] == self.batch else shape
            if dtype.startswith(("int", "uint")):
                drawn[name] = rng.integers(0, 3, size).astype(dtype)
            elif dtype == "bool":
                drawn[name] = rng.random(size) < 0.5
            else:
                drawn[name] = rng.uniform(0.05, 0.95, size).astype(dtype)
        return drawn


def described(text: str) -> Inputs | None:
    """The inputs of a `# inputs: y_true=int32[8] y_pred=float32[8, 10]` comment."""
    match = _COMMENT.search(text)
    return parse(match["spec"]) if match else None


def parse(spec: str) -> Inputs:
    """The inputs of `--inputs`."""
    entries = tuple(
        (match["name"], match["dtype"], tuple(int(size) for size in match["shape"].split(",") if size.strip()))
        for match in _ENTRY.finditer(spec)
    )
    if not entries:
        raise InvalidOption(
            f'The inputs cannot be read. Received: {spec!r}. Expected such as "y_true=int32[8] y_pred=float32[8,10]".'
        )
    sizes = [shape[0] for _, _, shape in entries if shape]
    return Inputs(entries, sizes[0] if sizes else 1)


def usual(function: Callable[..., Any], true: str, pred: str) -> Iterator[Inputs]:
    """The shapes that losses mostly have, for a function whose targets and outputs have these names."""
    others = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in (true, pred)
        and parameter.default is parameter.empty
        and parameter.kind == parameter.POSITIONAL_OR_KEYWORD
    ]
    for truth, guess in _USUAL:
        for dtype in ("int32", "float32") if others else ("int32",):
            entries = [(true, truth[0], (8, *truth[1])), (pred, guess[0], (8, *guess[1]))]
            entries += [(name, dtype, (8,)) for name in others]
            yield Inputs(tuple(entries), 8)
