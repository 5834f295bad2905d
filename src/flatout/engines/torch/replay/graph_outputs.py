"""The results of a step in the memory of its CUDA graph."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch


class GraphOutputs:
    """What a graph leaves in its own memory; made inside its capture.

    Scalars of the commonest dtype are joined there, so that a step's logs cost one copy.
    """

    def __init__(self, outputs: list[Any]) -> None:
        dtypes = Counter(output.dtype for output in outputs if _is_scalar(output))
        commonest = dtypes.most_common(1)[0][0] if dtypes else None
        self._joined = [n for n, output in enumerate(outputs) if _is_scalar(output) and output.dtype == commonest]
        self._stack = torch.stack([outputs[n] for n in self._joined]) if self._joined else None
        self._others = [None if n in self._joined else output for n, output in enumerate(outputs)]

    def copy(self) -> list[Any]:
        copies = [output.clone() if isinstance(output, torch.Tensor) else output for output in self._others]
        if self._stack is not None:
            for number, scalar in zip(self._joined, self._stack.clone().unbind(), strict=True):
                copies[number] = scalar
        return copies


def _is_scalar(output: Any) -> bool:
    return isinstance(output, torch.Tensor) and output.ndim == 0
