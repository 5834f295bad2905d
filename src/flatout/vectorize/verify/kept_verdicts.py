"""Verdicts of an earlier process, kept on disk: a script that is run again need not wait for them.

A verdict is found again only by a digest of all that it depends on: the original with its helpers and constants, the
rewrite, the sizes that were asked for, flatout's own source, the versions and settings of the libraries, the device.

Of the user's code it is the hash of a pickle in which functions and classes stand with their code, what they close over
and the globals and helpers that they use. Of libraries that are named by their version only the names count. What
cannot be digested for certain is not: modules of the user as such, names that are looked up while it runs, files,
generators of random numbers, large tables.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import enum
import functools
import hashlib
import os
import pickle
import platform
import struct
import sys
import sysconfig
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base import disk_cache
from flatout.base.when_used import jax, keras, tf, torch
from flatout.pysource.library_functions import code_names

from .trial_inputs import Recipe
from .verification import Rewrite, Verdict

_MOST_KEPT = 2000
_VARIABLES = ("XLA_FLAGS", "TF_XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "TF_ENABLE_ONEDNN_OPTS")
# Their versions are part of the digest.
LIBRARIES = ("keras", "jax", "jaxlib", "tensorflow", "torch", "numpy", "scipy", "flatout")
# Of the standard library: what computes, and has nothing of the world outside.
_COMPUTING = ("builtins", "math", "cmath", "functools", "itertools", "operator", "collections", "abc", "enum", "typing")
# Names by which code reaches what is not written in it.
_REACHING = frozenset(
    (
        *("globals", "locals", "vars", "getattr", "eval", "exec", "compile", "__import__", "__dict__", "__globals__"),
        *("open", "input", "load", "fromfile", "loadtxt", "genfromtxt", "memmap", "environ", "getenv", "id", "hash"),
    )
)
# Beside numbers, texts and containers: what has a pickle that says all of it.
_PICKLED = (np.generic, np.dtype, slice, range, complex, types.EllipsisType, functools.partial)
_BUILT_IN = (
    *(types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType),
)
# Of a class: where it stands and what Python keeps there.
_NO_PART_OF_A_CLASS = frozenset(
    ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "__static_attributes__")
)
# A digest must cost less than what it spares.
_MOST_PARTS = 20_000
_MOST_BYTES = 16 * 2**20
_POINTER = struct.calcsize("P")
_STANDARD = sysconfig.get_path("stdlib")


def key_of(
    function: Any, holder: Any, rewrite: Rewrite, shapes: Mapping[str, Sequence[int | None]] | None, lenient: bool
) -> str | None:
    """What a verdict is found by, or None: something that it depends on cannot be told."""
    sizes = None if shapes is None else {name: tuple(shape[1:]) for name, shape in shapes.items()}
    # What else a rewrite holds follows from the function.
    rewritten = (rewrite.source, rewrite.ranks, rewrite.guards, rewrite.notes)
    try:
        return digest(function, holder, rewritten, dict(rewrite.names), sizes, lenient, _surroundings())
    except Exception:
        # Without a key the comparison is made: neither what has no digest nor a fault of ours is the user's.
        return None


def load(key: str) -> tuple[Verdict, Recipe] | None:
    """A verdict that was kept."""
    try:
        verdict, recipe = ast.literal_eval((disk_cache.folder("verdicts") / key).read_text())
        return Verdict(**verdict | {"is_remembered": True}), Recipe(**recipe)
    except (OSError, ValueError, TypeError, SyntaxError):
        return None


def save(key: str, verdict: Verdict, recipe: Recipe) -> None:
    """Keep a verdict, if there is a place for it."""
    with contextlib.suppress(OSError):
        folder = disk_cache.folder("verdicts")
        disk_cache.put(folder / key, repr((vars(verdict), vars(recipe))).encode())
        disk_cache.trim(folder, _MOST_KEPT)


def _surroundings() -> dict[str, Any]:
    """Versions, settings and the device, as they are now."""
    backend = keras.config.backend()
    return {
        "flatout": _own_source(),
        "python": sys.version,
        "machine": platform.machine(),
        "versions": {name: str(getattr(sys.modules.get(name), "__version__", None)) for name in LIBRARIES},
        "variables": {name: os.environ.get(name) for name in _VARIABLES},
        "keras": (backend, keras.config.floatx(), keras.config.epsilon(), keras.config.image_data_format()),
        "policy": keras.config.dtype_policy().name,
        "backend": _of_backend(backend),
    }


def _of_backend(backend: str) -> Any:
    if backend == "jax":
        return jax.devices()[0].device_kind, {name: str(value) for name, value in sorted(jax.config.values.items())}
    if backend == "tensorflow":
        return len(tf.config.list_physical_devices("GPU")), tf.config.experimental.tensor_float_32_execution_enabled()
    return (
        torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        *(str(torch.get_default_device()), str(torch.get_default_dtype()), torch.get_float32_matmul_precision()),
        torch.are_deterministic_algorithms_enabled(),
    )


@functools.cache
def _own_source() -> str:
    """A digest of the source that rewrites and verifies."""
    made = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        made.update(file.read_bytes())
    return made.hexdigest()


class NoDigest(Exception):
    """The results of a function depend on something that has no digest."""


def digest(*values: Any) -> str:
    """A digest that is the same in another process only if the values mean the same.

    Raises:
        NoDigest: Of one of them, or of what it uses, nobody can tell.
    """
    made = _Hash()
    try:
        _Pickler(made, protocol=5).dump(values)
    except (pickle.PicklingError, TypeError, RecursionError) as error:
        raise NoDigest(str(error)) from error
    return made.hash.hexdigest()


class _Hash:
    """A file of which the hash is kept."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._bytes = 0

    def write(self, data: Any) -> None:
        self._bytes += len(data)
        if self._bytes > _MOST_BYTES:
            raise NoDigest("it has too many bytes")
        self.hash.update(data)


class _Pickler(pickle.Pickler):
    _count = 0

    def persistent_id(self, value: Any) -> Any:
        """Sets in an order that another process has as well."""
        return (type(value).__name__, sorted(value, key=repr)) if type(value) in (set, frozenset) else None

    def reducer_override(self, value: Any) -> Any:
        self._count += 1
        if self._count > _MOST_PARTS:
            raise NoDigest("it has too many parts")
        if value is tuple:  # See `_parts`.
            return NotImplemented
        match value:
            case types.FunctionType():
                return _function(value)
            case types.CodeType():
                return _code(value)
            case types.ModuleType() if _is_of_a_library(value.__name__):
                return _parts("module", value.__name__)
            case type():
                return _class(value)
            case types.MethodType():
                return _parts("method", value.__func__, value.__self__)
            case property():
                return _parts("property", value.fget, value.fset, value.fdel)
            case staticmethod() | classmethod():
                return _parts(type(value).__name__, value.__func__)
            case enum.Enum():
                return _parts("member", type(value), value.name, dict(vars(value)))
            case np.ndarray() if type(value) is np.ndarray and value.dtype.kind in "biufcmMSU":
                return NotImplemented
            case _ if isinstance(value, _PICKLED) and _is_of_a_library(type(value).__module__):
                return NotImplemented
            case _ if isinstance(value, _BUILT_IN):
                return _built_in(value)
        return _object(value)


def _parts(*parts: Any) -> tuple[Any, ...]:
    """As a pickle has an object: what comes last may refer to the object itself."""
    return tuple, (), parts


def _function(function: types.FunctionType) -> tuple[Any, ...]:
    code, outside = function.__code__, function.__globals__
    cells = [_contents(cell) for cell in function.__closure__ or ()]
    held = (function.__defaults__, function.__kwdefaults__, cells)
    if _is_of_a_library(outside.get("__name__")):
        # A decorator's function may be a library's and what it decorates the user's.
        return _parts("library", outside["__name__"], code.co_qualname, *held)
    names = sorted(set(code_names(code)))
    if reaching := [name for name in names if name in _REACHING]:
        raise NoDigest(f"it uses {reaching[0]!r}")
    own = {name: value for name, value in vars(function).items() if name != "__wrapped__"}
    return _parts("function", code, *held, own, {name: outside[name] for name in names if name in outside})


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "nothing yet"


def _code(code: types.CodeType) -> tuple[Any, ...]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME" and not _is_of_a_library(instruction.argval):
            raise NoDigest(f"it imports {instruction.argval!r} while it runs")
    return _parts(
        *("code", code.co_code, code.co_flags, code.co_exceptiontable, code.co_consts),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        *(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
    )


def _class(kind: type) -> tuple[Any, ...]:
    if _is_found(kind.__module__, kind.__qualname__, kind):
        return _parts("class", kind.__module__, kind.__qualname__)
    if not _is_of_a_library(type(kind).__module__):
        raise NoDigest(f"{kind.__qualname__} is a class of a class of its own")
    names = sorted(vars(kind).keys() - _NO_PART_OF_A_CLASS)
    held = {name: vars(kind)[name] for name in names if not name.startswith("_abc_")}
    return _parts("class", kind.__module__, kind.__qualname__, kind.__mro__[1:], held)


def _built_in(value: Any) -> tuple[Any, ...]:
    owner, module = getattr(value, "__self__", None), getattr(value, "__module__", None)
    if owner is None and module is not None and not _is_of_a_library(module):
        raise NoDigest(f"it uses {value!r}")
    return _parts("built in", owner, module, getattr(value, "__qualname__", value.__name__))


def _object(value: Any) -> tuple[Any, ...]:
    from keras import Variable, ops

    module = "numpy" if isinstance(value, np.ufunc) else getattr(value, "__module__", None)
    name = getattr(value, "__name__", None)
    if _is_found(module, name, value):
        return _parts("library", module, name)
    if isinstance(value, Variable) or ops.is_tensor(value):
        if np.prod(value.shape) > _MOST_BYTES:
            raise NoDigest("it has too many bytes")  # Before they are copied to the host.
        # A tensor without a value, of a program that is being traced, raises.
        array = np.ascontiguousarray(ops.convert_to_numpy(value))
        return _parts("tensor", str(value.dtype), getattr(value, "weak_type", None), array)
    kind = type(value)
    known = object.__basicsize__ + _POINTER * ((kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0))
    if kind.__itemsize__ or kind.__basicsize__ > known or not hasattr(value, "__dict__"):
        raise NoDigest(f"it uses a {kind.__name__}, which has more than its attributes")
    return _parts("object", kind, dict(vars(value)))


def _is_found(module: Any, name: Any, value: Any) -> bool:
    """Whether a library has this very object under its name, such as a function of jax or numpy."""
    return _is_of_a_library(module) and getattr(sys.modules.get(module), str(name), None) is value


def _is_of_a_library(module: Any) -> bool:
    """Whether a module is one whose version is known, from where packages lie: a file of the user may have its name."""
    package = module.partition(".")[0] if isinstance(module, str) else ""
    if package == "flatout" or package not in (*LIBRARIES, *_COMPUTING) or package not in sys.modules:
        return package == "flatout"
    file = getattr(sys.modules[package], "__file__", None)
    if file is None:
        return package in sys.builtin_module_names
    return file.startswith(_STANDARD) or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
