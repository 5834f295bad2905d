"""`torch._foreach_add_(variables, gradients, alpha=tensor)`, as Keras' SGD and Adadelta call it.

ATen takes `alpha` as a number, so torch reads the tensor on the host at every step. A recording keeps the tensor.
"""

from __future__ import annotations

from typing import Any

import torch


def add_scaled_(variables: list[torch.Tensor], updates: list[torch.Tensor], alpha: torch.Tensor) -> None:
    """Add `alpha * updates` to the variables in place, without waiting for the device."""
    if alpha.device.type == "cpu":
        torch._foreach_add_(variables, updates, alpha=alpha.item())
    else:
        torch._foreach_add_(variables, torch._foreach_mul(updates, alpha))


add_scaled_.written_arguments = ((0, "variables", False),)  # type: ignore[attr-defined]


def is_scaled_add(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call is the one that `add_scaled_` stands for."""
    return func is torch._foreach_add_ and len(args) == 2 and isinstance(kwargs.get("alpha"), torch.Tensor)
