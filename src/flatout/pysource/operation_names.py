"""One name for all spellings of an array operation: `keras.ops.mean`, `tf.reduce_mean`, `K.mean`, `y.mean()`."""

from __future__ import annotations

_PREFIXES = (
    "keras.ops.numpy.", "keras.ops.nn.", "keras.ops.image.", "keras.ops.linalg.", "keras.ops.math.", "keras.ops.core.",
    "keras.ops.", "keras.backend.", "keras.activations.",
    "tensorflow.compat.v1.", "tensorflow.experimental.numpy.", "tensorflow.math.", "tensorflow.linalg.",
    "tensorflow.nn.", "tensorflow.image.", "tensorflow.signal.", "tensorflow.ragged.", "tensorflow.",
    "torch.nn.functional.", "torch.linalg.", "torch.special.", "torch.fft.", "torch.",
    "jax.numpy.linalg.", "jax.numpy.", "jax.nn.", "jax.lax.", "jax.scipy.special.", "jax.",
)  # fmt: skip


_TESTS = frozenset({"is_nan", "is_finite", "is_inf", "is_non_decreasing"})
_NO_OPERATIONS = frozenset(
    {
        "any_symbolic_tensors",
        "standardize_dtype",
        "result_type",
        "floatx",
        "image_data_format",
        "backend",
        "executing_eagerly",
    }
)
HOST_LIBRARIES = (
    "numpy", "pandas", "polars", "scipy", "sklearn", "skimage", "cv2", "statsmodels", "numba", "xgboost", "lightgbm",
    "shapely", "networkx", "nltk", "PIL", "librosa", "editdistance", "Levenshtein", "matplotlib", "seaborn",
)  # fmt: skip


# One name to its other spellings.
_SPELLINGS = {
    "abs": "absolute",
    "all": "reduce_all",
    "any": "reduce_any",
    "arange": "range",
    "boolean_mask": "masked_select",
    "cast": "astype",
    "cast_float": "to_float",
    "cast_int": "to_int32 to_int64",
    "clip": "clamp clip_by_value",
    "concatenate": "cat concat",
    "divide": "div true_divide truediv",
    "expand_dims": "unsqueeze",
    "flatten": "ravel",
    "isnan": "is_nan",
    "matmul": "batch_dot bmm dot mm",
    "max": "amax",
    "min": "amin",
    "multiply": "mul",
    "power": "pow",
    "reshape": "view",
    "searchsorted": "bucketize digitize",
    "shape": "get_shape int_shape",
    "square": "sqr",
    "stop_gradient": "detach",
    "subtract": "sub",
    "take": "batch_gather embedding gather gather_nd index_select take_along_axis",
    "top_k": "topk",
    "transpose": "permute permute_dimensions swapaxes t",
    "unstack": "unbind",
}


_ALIASES = {other: name for name, others in _SPELLINGS.items() for other in others.split()}


REDUCTIONS = frozenset({
    "all", "any", "argmax", "argmin", "average", "count_nonzero", "entropy", "euclidean_norm", "logsumexp", "max",
    "mean", "median", "min", "nanmean", "nanmedian", "nansum", "norm", "prod", "quantile", "reduce_std",
    "reduce_variance", "std", "sum", "var", "variance",
})  # fmt: skip


# Nothing of these flows back.
NOT_DIFFERENTIABLE = frozenset({
    "all", "any", "arange", "argmax", "argmin", "argsort", "bincount", "cast_int", "ceil", "constant",
    "count_nonzero", "equal", "eye", "floor", "full", "greater", "greater_equal", "histogram", "in_top_k",
    "isfinite", "isinf", "isnan", "less", "less_equal", "logical_and", "logical_not", "logical_or", "nonzero",
    "not_equal", "one_hot", "ones", "ones_like", "round", "searchsorted", "shape", "sign", "stop_gradient",
    "unique", "zeros", "zeros_like",
})  # fmt: skip


COMPARISONS = frozenset({
    "eq", "equal", "ge", "greater", "greater_equal", "gt", "isclose", "isfinite", "isinf", "isnan", "le", "less",
    "less_equal", "logical_and", "logical_not", "logical_or", "lt", "ne", "not_equal",
})  # fmt: skip


CREATORS = frozenset({
    "arange", "array", "as_tensor", "asarray", "constant", "convert_to_tensor", "diag", "empty", "eye", "fill",
    "from_numpy", "full", "identity", "linspace", "ones", "tensor", "tri", "variable", "zeros",
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
            return plain(short) if "." not in short and not _asks_about(short) else ""
    return ""


def _asks_about(short: str) -> bool:
    """`tf.is_tensor(y)` and the like give a Python value."""
    return (short.startswith("is_") and short not in _ALIASES and short not in _TESTS) or short in _NO_OPERATIONS


def plain(short: str) -> str:
    """The one name of a function or method without its module."""
    if short.startswith("reduce_") and short not in REDUCTIONS:
        short = _ALIASES.get(short, short.removeprefix("reduce_"))
    return _ALIASES.get(short, short)


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
