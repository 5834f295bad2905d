"""A loss and its rewrite on the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flatout.vectorize.verify.gradients import value_and_gradient


def assert_same_loss(
    rewrite: Callable[..., Any],
    original: Callable[..., Any],
    arrays: dict[str, np.ndarray],
    predicted: str | None = "y_pred",
    *,
    compiled: bool = False,
) -> None:
    """Equal in value, and in the gradient with respect to the predictions where the original has a finite one."""
    value, gradient = value_and_gradient(original, arrays, predicted)
    other, slope = value_and_gradient(rewrite, arrays, predicted, compiled=compiled)
    np.testing.assert_allclose(other, value, rtol=2e-5, atol=2e-5)
    if gradient is not None and np.isfinite(gradient).all():
        slope = np.zeros_like(gradient) if slope is None else slope
        np.testing.assert_allclose(slope, gradient, atol=2e-4 * np.abs(gradient).max() + 1e-9)
