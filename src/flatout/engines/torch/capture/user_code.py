"""Tells the user's code from Keras, torch, the standard library and other packages, by file and by module."""

from __future__ import annotations

import enum
import functools
import importlib.metadata
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .python_state import PLAIN
from .surroundings import owned_objects

# Packages that compute and do nothing else, but for the files below.
COMPUTING = frozenset({"keras", "torch", "torchvision", "functorch", "numpy", "optree", "flatout"})
COMPUTING |= {"einops", "opt_einsum", "ml_dtypes", "scipy"}
# Modules of the standard library without effects; `_heapq` and the like count as `heapq`.
STANDARD = frozenset({"abc", "bisect", "builtins", "cmath", "collections", "collections_abc", "contextlib", "copy"})
STANDARD |= {"copyreg", "dataclasses", "decimal", "enum", "fractions", "frozen_importlib", "functools", "heapq", "imp"}
STANDARD |= {"importlib", "inspect", "itertools", "keyword", "math", "numbers", "operator", "re", "reprlib", "sre"}
STANDARD |= {"statistics", "string", "struct", "textwrap", "types", "typing", "unicodedata", "warnings", "weakref"}
STANDARD |= {"weakrefset"}
_LEAVES = (*PLAIN, torch.Tensor, np.ndarray, np.generic, type, types.ModuleType)


class Kind(enum.Enum):
    """What the code of a file is to a step."""

    COMPUTING = enum.auto()
    # Computes as well, with what the user has set on layers, losses, metrics and optimizers.
    CONFIGURED = enum.auto()
    STANDARD = enum.auto()
    TRACKED_CONTAINERS = enum.auto()
    USER = enum.auto()
    WRITER = enum.auto()
    OTHER = enum.auto()


# Files of computing packages that are something else, by a part of their path.
_FILES = {
    "/torch/nn/modules/module.py": Kind.COMPUTING,
    "/torch/nn/modules/": Kind.CONFIGURED,
    # They write to disk or to the terminal, whoever calls them.
    "/keras/src/utils/io_utils.py": Kind.WRITER,
    "/torch/serialization.py": Kind.WRITER,
    "/torch/utils/tensorboard/": Kind.WRITER,
    "/keras/src/saving/saving_api.py": Kind.WRITER,
    "/keras/src/saving/saving_lib.py": Kind.WRITER,
    "/numpy/lib/_npyio_impl.py": Kind.WRITER,
    "/numpy/lib/_format_impl.py": Kind.WRITER,
    # They have effects when the user calls them.
    "/torch/random.py": Kind.OTHER,
    "/torch/distributed/": Kind.OTHER,
    "/keras/src/utils/rng_utils.py": Kind.OTHER,
    # Wrappers around functions of torch, which hide who calls.
    "/torch/_compile.py": Kind.STANDARD,
    "/torch/_dynamo/": Kind.STANDARD,
    "/keras/src/utils/tracking.py": Kind.TRACKED_CONTAINERS,
}


def kind_of(filename: str, user_packages: frozenset[str]) -> Kind:
    """The kind of the code in a file; `user_packages` are installed packages that the model's classes come from."""
    package = _package_of(filename)
    # Keras' own tests live in Keras' package, and define models as users do.
    if package is None or package in user_packages or filename.endswith("_test.py"):
        return Kind.USER
    path = filename.replace(os.sep, "/")
    for part, kind in _FILES.items():
        # Keras has a folder for torch, too.
        if part.startswith(f"/{package}/") and part in path:
            return kind
    if package == "random":
        return Kind.WRITER
    if package in COMPUTING:
        return Kind.CONFIGURED if package == "keras" else Kind.COMPUTING
    return Kind.STANDARD if package.lstrip("_") in STANDARD else Kind.OTHER


def is_free_of_effects(module: str) -> bool:
    """Whether C functions of this module compute and do nothing else."""
    root = module.partition(".")[0]
    return root in COMPUTING or root.lstrip("_") in STANDARD


@functools.lru_cache(8192)
def _package_of(filename: str) -> str | None:
    """The installed package or standard module of a file, or None for the user's own file or cell."""
    if filename.startswith("<frozen "):
        return filename[len("<frozen ") : -1].partition(".")[0]
    if filename.startswith("<"):
        return None
    path = Path(filename)
    for folder in path.parents:
        top = path.relative_to(folder).parts[0]
        if folder.name in ("site-packages", "dist-packages") or top in _installed_in(folder):
            return top.removesuffix(".py")
    # Packages installed as links to their sources.
    for name in COMPUTING & sys.modules.keys():
        home = getattr(sys.modules[name], "__file__", None)
        if home and path.is_relative_to(Path(home).parent):
            return name
    standard = Path(os.__file__).parent
    return path.relative_to(standard).parts[0].removesuffix(".py") if path.is_relative_to(standard) else None


@functools.lru_cache(1024)
def _installed_in(folder: Path) -> frozenset[str]:
    """What an installer has put into a folder of another name (`pip install --target`): top folders and modules."""
    if not any(folder.glob("*.dist-info")):
        return frozenset()
    distributions = importlib.metadata.distributions(path=[str(folder)])
    return frozenset(file.parts[0] for one in distributions for file in one.files or ())


def user_packages_of(model: Any) -> frozenset[str]:
    """The top modules of all classes and functions of the model that are not Keras' own.

    Found by a walk over the model, its metrics, losses and optimizer and everything in them.
    """
    packages: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [*owned_objects(model)]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, _LEAVES) or id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            waiting.extend(thing.values())
        elif isinstance(thing, (list, tuple, set, frozenset)):
            waiting.extend(thing)
        elif isinstance(thing, functools.partial):
            waiting.extend((thing.func, thing.args, thing.keywords))
        elif isinstance(thing, types.MethodType):
            waiting.extend((thing.__func__, thing.__self__))
        elif isinstance(thing, (types.FunctionType, types.BuiltinFunctionType)):
            if _is_users(thing.__module__):
                packages.add(_root(thing.__module__))
        elif not _is_users(type(thing).__module__):
            waiting.append(getattr(thing, "__dict__", None))
        # The package of a layer is the model's; that of an object it holds, a logger say, is not.
        elif any(_root(base.__module__) == "keras" for base in type(thing).__mro__):
            packages.add(_root(type(thing).__module__))
            waiting.append(getattr(thing, "__dict__", None))
    return frozenset(packages)


def _root(module: Any) -> str:
    # Some extension modules (psutil's) set `__module__` to the module itself.
    return str(getattr(module, "__name__", module) or "").partition(".")[0]


def _is_users(module: Any) -> bool:
    root = _root(module)
    if root in ("keras", "flatout"):
        return str(module).endswith("_test")
    return root == "__main__" or not (is_free_of_effects(root) or root in sys.stdlib_module_names)
