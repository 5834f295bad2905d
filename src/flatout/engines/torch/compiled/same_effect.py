"""Whether a compiled step does what the recorded one does: to a batch, within the rounding of its numbers."""

from __future__ import annotations

import torch

# Of what a step changes in a tensor, by whether anything in it is computed in half precision.
_TOLERANCE = {False: 1e-2, True: 1e-1}
# How far a step goes astray whose state is off in the last bits says how exact it is: Adam makes a whole step of a
# gradient that is nothing but rounding.
_ASTRAY = 4.0
_LAST_BITS = 2.0**-22
# What a change is added to is rounded anew.
_LAST_BIT = 2.0**-23


def off_in_last_bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose numbers are rounded a little differently, always the same way; others are as they are."""
    if not tensor.is_floating_point():
        return tensor.clone()
    generator = torch.Generator(device=tensor.device).manual_seed(0)
    signs = torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device) * 2 - 1
    return (tensor * (1 + signs * _LAST_BITS)).to(tensor.dtype)


def difference(
    before: list[torch.Tensor],
    wanted: list[torch.Tensor],
    off: list[torch.Tensor],
    astray: list[torch.Tensor],
    got: list[torch.Tensor],
    in_half_precision: bool = False,
) -> str:
    """What differs between the effects of two steps, or nothing.

    Args:
        before: The tensors that the step changes.
        wanted: After the recorded step.
        off: The same with a state that is off in its last bits.
        astray: After the recorded step with that state.
        got: After the compiled step.
        in_half_precision: Whether some of it is computed so.
    """
    tolerance = _TOLERANCE[in_half_precision]
    for old, right, old_near, near, new in zip(before, wanted, off, astray, got, strict=True):
        if not right.is_floating_point():
            if not torch.equal(right, new):
                return f"it leaves other integers in a tensor of shape {tuple(right.shape)}"
            continue
        if not torch.equal(right.isfinite(), new.isfinite()):
            return f"it leaves NaN or infinity elsewhere in a tensor of shape {tuple(right.shape)}"
        old, right, old_near, near, new = map(_finite, (old, right, old_near, near, new))
        change, changed_astray = right - old, near - old_near
        allowed = tolerance * change.norm() + _ASTRAY * (changed_astray - change).norm() + _LAST_BIT * right.norm()
        if (apart := (new - right).norm()) > allowed:
            return f"it leaves a tensor of shape {tuple(right.shape)} off by {apart:.1e}, {allowed:.1e} allowed"
    return ""


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(tensor.double(), 0.0, 0.0, 0.0)
