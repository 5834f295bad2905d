"""The many spellings of one operation: `tf.reduce_mean`, `torch.mean`, `K.mean` and `np.mean` are `ops.mean`."""

from __future__ import annotations

import inspect
from typing import Any

LIBRARIES = ("keras", "tensorflow", "torch", "numpy", "jax", "math", "tf_keras", "builtins")

_ALIASES = {
    "reduce_mean": "mean", "reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod",
    "reduce_any": "any", "reduce_all": "all", "reduce_logsumexp": "logsumexp", "reduce_std": "std",
    "reduce_variance": "var", "amax": "max", "amin": "min", "nanmax": "", "nansum": "",
    "clip_by_value": "clip", "clamp": "clip", "concat": "concatenate", "cat": "concatenate", "pow": "power",
    "mul": "multiply", "sub": "subtract", "div": "divide", "truediv": "divide", "true_divide": "divide",
    "neg": "negative", "eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal", "lt": "less",
    "le": "less_equal", "absolute": "abs", "fabs": "abs", "acos": "arccos", "asin": "arcsin", "atan": "arctan",
    "unsqueeze": "expand_dims", "permute": "transpose", "unbind": "unstack", "range": "arange", "gather": "gather",
    "constant": "convert_to_tensor", "tensor": "convert_to_tensor", "as_tensor": "convert_to_tensor",
    "asarray": "convert_to_tensor", "array": "convert_to_tensor", "from_numpy": "convert_to_tensor",
    "identity": "convert_to_tensor", "ascontiguousarray": "convert_to_tensor", "Variable": "",
    "float32": "as_float", "float64": "as_float", "int32": "as_int", "int64": "as_int", "argsort": "argsort",
    "variable": "", "batch_dot": "", "detach": "stop_gradient", "int_shape": "shape", "vstack": "stack",
    "logical_and": "logical_and", "bitwise_and": "logical_and", "bitwise_or": "logical_or",
    "masked_select": "boolean_mask", "inner": "dot", "vdot": "dot",
    # What is in an empty array, nobody may read.
    "empty": "zeros", "empty_like": "zeros_like",
    "diag": "diagonal", "diag_part": "diagonal", "tensor_diag_part": "diagonal",
    "arg_max": "argmax", "topk": "top_k", "reverse": "flip", "bincount": "", "unique": "",
}  # fmt: skip

# Where libraries mean different things by one name.
_MEANINGS = {
    ("torch", "gather"): "gather_along", ("torch", "split"): "split_by_size",
    ("tensorflow", "split"): "split_by_count_or_sizes",
    ("torch", "normalize"): "normalize_of_torch", ("tensorflow", "l2_normalize"): "normalize_of_tensorflow",
    ("keras", "l2_normalize"): "normalize_of_tensorflow", ("torch", "select"): "select_one", ("numpy", "select"): "",
}  # fmt: skip

_KEYWORDS = {
    "dim": "axis", "keepdim": "keepdims", "keep_dims": "keepdims", "input": "x", "input_tensor": "x", "a": "x",
    "values": "x", "tensor": "x", "logits": "x", "tensors": "x", "arrays": "x", "arys": "x", "clip_value_min": "x_min",
    "clip_value_max": "x_max", "min_value": "x_min", "max_value": "x_max", "a_min": "x_min", "a_max": "x_max",
    "min": "x_min", "max": "x_max", "params": "x", "other": "x2", "y": "x2", "reduction_indices": "axis", "object": "x",
}  # fmt: skip

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


def canonical(path: str) -> str:
    """The name in `keras.ops` of what a library calls otherwise; empty where it has none here."""
    name = path.rpartition(".")[2]
    library = path.partition(".")[0]
    if (library, name) in _MEANINGS:
        return _MEANINGS[library, name]
    return _ALIASES.get(name, name)


def keywords(arguments: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments by the names that `keras.ops` has for them."""
    return {_KEYWORDS.get(name, name): value for name, value in arguments.items()}
