"""Whether a compiled step does what the recorded one does: to a batch, within the rounding of its numbers."""

from __future__ import annotations

import torch

# Of what a step changes in a tensor, by whether anything in it is computed in half precision.
_TOLERANCE = {False: 1e-2, True: 1e-1}
# How far a step goes astray whose state is off in the last bits says how exact it is: Adam makes a whole step of a
# gradient that is nothing but rounding.
_ASTRAY = 4.0
_LAST_BITS = 2.0**-22


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
    astray: list[torch.Tensor],
    got: list[torch.Tensor],
    in_half_precision: bool = False,
) -> str:
    """What differs between the effects of two steps, or nothing.

    Args:
        before: The tensors that the step changes.
        wanted: After the recorded step.
        astray: After the recorded step with a state that was off in its last bits.
        got: After the compiled step.
        in_half_precision: Whether some of it is computed so.
    """
    tolerance = _TOLERANCE[in_half_precision]
    for old, right, near, new in zip(before, wanted, astray, got, strict=True):
        if not right.is_floating_point():
            if not torch.equal(right, new):
                return f"it leaves other integers in a tensor of shape {tuple(right.shape)}"
            continue
        if not torch.equal(right.isfinite(), new.isfinite()):
            return f"it leaves NaN or infinity elsewhere in a tensor of shape {tuple(right.shape)}"
        old, right, near, new = (torch.nan_to_num(one.double(), 0.0, 0.0, 0.0) for one in (old, right, near, new))
        allowed = tolerance * (right - old).norm() + _ASTRAY * (near - right).norm() + 1e-6 * right.norm()
        if (off := (new - right).norm()) > allowed:
            return f"it leaves a tensor of shape {tuple(right.shape)} off by {off:.1e}, {allowed:.1e} allowed"
    return ""
