"""The many spellings of one operation: `tf.reduce_mean`, `torch.mean`, `K.mean`, `np.mean` and `y.mean()`.

`canonical` gives the name in `keras.ops`, for who computes with it; `plain` takes also those together that give the
same kind of value (`gather` and `embedding` are `take`), for who only wants to know what comes out.
"""

from __future__ import annotations

from typing import Any

_PREFIXES = (
    "keras.ops.numpy.", "keras.ops.nn.", "keras.ops.image.", "keras.ops.linalg.", "keras.ops.math.", "keras.ops.core.",
    "keras.ops.", "keras.backend.", "keras.activations.",
    "tensorflow.compat.v1.", "tensorflow.experimental.numpy.", "tensorflow.math.", "tensorflow.linalg.",
    "tensorflow.nn.", "tensorflow.image.", "tensorflow.signal.", "tensorflow.ragged.", "tensorflow.",
    "torch.nn.functional.", "torch.linalg.", "torch.special.", "torch.fft.", "torch.",
    "jax.numpy.linalg.", "jax.numpy.", "jax.nn.", "jax.lax.", "jax.scipy.special.", "jax.",
)  # fmt: skip
_TESTS = frozenset({"is_nan", "is_finite", "is_inf", "is_non_decreasing"})
_NO_OPERATIONS = frozenset({
    "any_symbolic_tensors", "standardize_dtype", "result_type", "floatx", "image_data_format", "backend",
    "executing_eagerly",
})  # fmt: skip
HOST_LIBRARIES = (
    "numpy", "pandas", "polars", "scipy", "sklearn", "skimage", "cv2", "statsmodels", "numba", "xgboost", "lightgbm",
    "shapely", "networkx", "nltk", "PIL", "librosa", "editdistance", "Levenshtein", "matplotlib", "seaborn",
)  # fmt: skip

# One name to its other spellings.
_SPELLINGS = {
    "abs": "absolute fabs",
    "arange": "range",
    "arccos": "acos",
    "arcsin": "asin",
    "arctan": "atan",
    "argmax": "arg_max",
    "boolean_mask": "masked_select",
    "clip": "clamp clip_by_value",
    "concatenate": "cat concat",
    "convert_to_tensor": "array as_tensor asarray ascontiguousarray constant from_numpy identity tensor",
    "diagonal": "diag diag_part tensor_diag_part",
    "divide": "div true_divide truediv",
    "dot": "inner vdot",
    "equal": "eq",
    "expand_dims": "unsqueeze",
    "flip": "reverse",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "max": "amax",
    "min": "amin",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "power": "pow",
    "shape": "int_shape",
    "stack": "vstack",
    "stop_gradient": "detach",
    "subtract": "sub",
    "top_k": "topk",
    "transpose": "permute",
    "unstack": "unbind",
    "var": "variance",
    # What is in an empty array, nobody may read.
    "zeros": "empty",
    "zeros_like": "empty_like",
}
# One name to others that give the same kind of value.
_ALIKE = {
    "cast": "astype",
    "cast_float": "to_float",
    "cast_int": "to_int32 to_int64",
    "flatten": "ravel",
    "isnan": "is_nan",
    "matmul": "batch_dot bmm dot mm",
    "reshape": "view",
    "searchsorted": "bucketize digitize",
    "shape": "get_shape",
    "square": "sqr",
    "take": "batch_gather embedding gather gather_nd index_select take_along_axis",
    "transpose": "permute_dimensions swapaxes t",
}
_ALIASES = {other: name for name, others in _SPELLINGS.items() for other in others.split()}
_KINDS = {other: name for name, others in _ALIKE.items() for other in others.split()}
# For who computes: what stands for numbers or truth values, and what has no form in `keras.ops` (empty).
_COMPUTED = {
    "float32": "as_float", "float64": "as_float", "int32": "as_int", "int64": "as_int",
    "bitwise_and": "logical_and", "bitwise_or": "logical_or",
    **dict.fromkeys(("nanmax", "nansum", "Variable", "variable", "batch_dot", "bincount", "unique"), ""),
}  # fmt: skip
# Where libraries mean different things by one name.
_MEANINGS = {
    ("torch", "gather"): "gather_along", ("torch", "split"): "split_by_size",
    ("tensorflow", "split"): "split_by_count_or_sizes",
    ("torch", "normalize"): "", ("torch", "select"): "select_one", ("numpy", "select"): "",
}  # fmt: skip
_KEYWORDS = {
    "dim": "axis", "keepdim": "keepdims", "keep_dims": "keepdims", "input": "x", "input_tensor": "x", "a": "x",
    "values": "x", "tensor": "x", "logits": "x", "tensors": "x", "arrays": "x", "arys": "x", "clip_value_min": "x_min",
    "clip_value_max": "x_max", "min_value": "x_min", "max_value": "x_max", "a_min": "x_min", "a_max": "x_max",
    "min": "x_min", "max": "x_max", "params": "x", "other": "x2", "y": "x2", "reduction_indices": "axis", "object": "x",
}  # fmt: skip

REDUCTIONS = frozenset({
    "all", "any", "argmax", "argmin", "average", "count_nonzero", "entropy", "euclidean_norm", "logsumexp", "max",
    "mean", "median", "min", "nanmean", "nanmedian", "nansum", "norm", "prod", "quantile", "std", "sum", "var",
    "variance",
})  # fmt: skip
COMPARISONS = frozenset({
    "equal", "greater", "greater_equal", "isclose", "isfinite", "isinf", "isnan", "less", "less_equal", "logical_and",
    "logical_not", "logical_or", "not_equal",
})  # fmt: skip
# Nothing of these flows back.
NOT_DIFFERENTIABLE = COMPARISONS | {
    "all", "any", "arange", "argmax", "argmin", "argsort", "bincount", "cast_int", "ceil", "constant", "count_nonzero",
    "eye", "floor", "full", "histogram", "in_top_k", "nonzero", "one_hot", "ones", "ones_like", "round", "searchsorted",
    "shape", "sign", "stop_gradient", "unique", "zeros", "zeros_like",
}  # fmt: skip
CREATORS = frozenset({
    "arange", "convert_to_tensor", "diagonal", "eye", "fill", "full", "linspace", "ones", "tri", "variable", "zeros",
})  # fmt: skip
# Work whose repetition, or whose place outside the step, is worth a remark.
HEAVY = frozenset({
    "argsort", "average_pool", "cdist", "cholesky", "conv", "conv2d", "cumprod", "cumsum", "det", "einsum", "erf",
    "exp", "fft", "fft2", "gamma", "inv", "lgamma", "log", "log_softmax", "logsumexp", "matmul", "max_pool", "norm",
    "power", "qr", "resize", "rfft", "segment_sum", "sigmoid", "slogdet", "softmax", "solve", "sort", "sqrt", "svd",
    "tanh", "tensordot", "top_k", "unique",
})  # fmt: skip


def operation(name: str) -> str:
    """The one name of an array function; empty where it is none that runs on the device."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            short = name.removeprefix(prefix)
            # `tf.is_tensor(y)` and the like give a Python value.
            asks = (short.startswith("is_") and short not in _TESTS) or short in _NO_OPERATIONS
            return plain(short) if "." not in short and not asks else ""
    return ""


def plain(short: str) -> str:
    """The one name of a function or method, without its module, that gives such a value."""
    name = short.removeprefix("reduce_")
    name = _ALIASES.get(name, name)
    return _KINDS.get(name, name)


def canonical(path: str) -> str:
    """The name in `keras.ops` of what a library calls otherwise; empty where it has none here."""
    name = path.rpartition(".")[2].removeprefix("reduce_")
    library = path.partition(".")[0]
    if (library, name) in _MEANINGS:
        return _MEANINGS[library, name]
    return _COMPUTED.get(name, _ALIASES.get(name, name))


def keywords(arguments: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments by the names that `keras.ops` has for them."""
    return {_KEYWORDS.get(name, name): value for name, value in arguments.items()}


def is_host_library(name: str) -> bool:
    """Whether a function computes on the host."""
    return name.split(".")[0] in HOST_LIBRARIES


def operations_name(name: str) -> str:
    """The name of a library's function under the library's present name."""
    for old, new in (
        ("tensorflow.compat.v1.keras", "keras"),
        ("tensorflow.python.keras", "keras"),
        ("tensorflow.keras", "keras"),
        ("tf_keras", "keras"),
        ("keras_core", "keras"),
        ("jax.experimental.host_callback", "jax.host_callback"),
    ):
        if name == old or name.startswith(old + "."):
            return new + name[len(old) :]
    package, _, rest = name.partition(".")
    is_inner = package == "keras" and rest.partition(".")[0] in ("src", "api")
    return f"keras{rest[3:]}" if is_inner else name
