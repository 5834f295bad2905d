"""What a live function is: of which library, what it reads, whether it draws random numbers or has its own gradient."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

LIBRARIES = ("keras", "tensorflow", "torch", "numpy", "jax", "math", "tf_keras", "builtins")

_RANDOM = (
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "dropout", "rand_like", "randn_like",
    "gumbel_softmax", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "poisson",
    "rrelu",
)  # fmt: skip


def path_of(function: Any) -> str | None:
    """The dotted name of a library's function, by the module that holds it."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__name__", None)
    if name is None:
        kind = type(function)
        # `nn.MSELoss()` is called as a function is.
        return f"{kind.__module__}.{kind.__name__}" if kind.__module__ == "torch.nn.modules.loss" else None
    if module is None:
        module = getattr(inspect.getmodule(function), "__name__", None) or type(function).__module__
    return f"{module}.{name}"


def library_of(path: str | None) -> str | None:
    root = (path or "").partition(".")[0]
    root = {"_operator": "builtins", "jaxlib": "jax"}.get(root, root)
    return root if root in LIBRARIES else None


def code_names(code: types.CodeType) -> Iterator[str]:
    """All names that code, and the code inside it, reads outside or of objects."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_names(constant)


def is_random(path: str | None) -> bool:
    """Whether a function draws random numbers."""
    parts = (path or "").split(".")
    return (
        "random" in parts
        or parts[0] == "random"
        or (parts[0] in ("torch", "tensorflow") and parts[-1] in _RANDOM)
        or any(part.startswith("random_") for part in parts)
    )


def draws(value: Any) -> bool:
    """Whether an object is a generator of random numbers: `random.Random`, NumPy's, TensorFlow's, torch's."""
    return any(
        base.__name__ in ("Generator", "RandomState", "Random", "RandomGenerator")
        and base.__module__.partition(".")[0] in ("numpy", "random", "tensorflow", "torch")
        for base in type(value).__mro__
    )


def may_define_gradient(function: Any) -> bool:
    """Whether a callable is what `custom_gradient` or `torch.autograd.Function.apply` makes of a user's function."""
    kind = f"{type(function).__module__}.{type(function).__qualname__}"
    if "custom_jvp" in kind or "custom_vjp" in kind:
        return library_of(getattr(function, "__module__", None)) is None  # jax defines its own functions so, too.
    owner = getattr(function, "__self__", None)
    names = [kind, getattr(function, "__qualname__", ""), *(str(base) for base in getattr(owner, "__mro__", ()))]
    return any(word in name for name in names for word in ("custom_gradient", "CustomGradient", "autograd"))
