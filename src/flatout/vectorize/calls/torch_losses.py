"""torch's own losses of single elements, as functions and as modules, on lifted tensors and selections of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flatout.vectorize.arrays.algebra import binary, elementwise, number, where
from flatout.vectorize.arrays.lifted_values import Known, Refused, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import tensor


def torch_loss(lift: Lifting, function: Any, path: str, args: list[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """A loss that is a function of the difference, with its reduction; None: it is another function.

    Args:
        lift: What is known of the user's function.
        function: What is called: of `torch.nn.functional`, or a module.
        path: Its dotted name.
        args: The predictions and the targets.
        kwargs: Further arguments.
    """
    each = _EACH.get(path.rpartition(".")[2])
    if each is None or not path.startswith("torch."):
        return None
    words = {name: value for name, value in kwargs.items() if name not in ("input", "target")}
    sides = [*args, *(kwargs[name] for name in ("input", "target") if name in kwargs)]
    if len(sides) != 2 or not all(isinstance(value, Known) for value in words.values()):
        return None
    given = {name: value.value for name, value in words.items()}
    reduction = given.pop("reduction", getattr(function, "reduction", "mean"))
    width = given.pop("beta", given.pop("delta", getattr(function, "beta", getattr(function, "delta", 1.0))))
    if given or reduction not in ("mean", "sum", "none"):
        return None
    first, second = (tensor(lift, value) for value in sides)
    if first.rank != second.rank:
        raise Refused("A loss of torch's is given arrays of different ranks.")
    made = each(lift, binary(lift, "-", first, second), width)
    return made if reduction == "none" else reduce(lift, reduction, made, made.inner)


def _square(lift: Lifting, off: Tensor, width: float) -> Tensor:
    return elementwise(lift, "square", (off,), off.kind)


def _abs(lift: Lifting, off: Tensor, width: float) -> Tensor:
    return elementwise(lift, "abs", (off,), off.kind)


def _smooth(lift: Lifting, off: Tensor, width: float) -> Tensor:
    """`smooth_l1_loss`: 0.5 e**2 / beta below beta, e - beta / 2 above."""
    if not width:
        return _abs(lift, off, width)
    return binary(lift, "/", _huber(lift, off, width), number(lift, width)) if width != 1 else _huber(lift, off, width)


def _huber(lift: Lifting, off: Tensor, width: float) -> Tensor:
    size = _abs(lift, off, width)
    near = binary(lift, "*", number(lift, 0.5), _square(lift, off, width))
    far = binary(lift, "-", size, number(lift, 0.5 * width))
    far = far if width == 1 else binary(lift, "*", number(lift, width), far)
    return where(lift, elementwise(lift, "less", (size, number(lift, width)), "bool", "<"), near, far)


_EACH: dict[str, Callable[[Lifting, Tensor, float], Tensor]] = {
    "mse_loss": _square, "MSELoss": _square, "l1_loss": _abs, "L1Loss": _abs, "smooth_l1_loss": _smooth,
    "SmoothL1Loss": _smooth, "huber_loss": _huber, "HuberLoss": _huber,
}  # fmt: skip
