"""The functions of a file as live objects, with inputs that they run with, and the lines that something came from."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import CannotRun, InvalidOption
from flatout.check.examining.root import Root
from flatout.check.examining.roots import roots_of
from flatout.pysource.source_file import Project, SourceFile
from flatout.pysource.trees import first_line
from flatout.vectorize.verify.gradients import ArgumentChanged, value_and_gradient

# The batch sizes of a trace.
SIZES = (4, 8, 16)
_COMMENT = re.compile(r"^#\s*(?:flatout:\s*)?inputs:\s*(?P<spec>.+)$", re.MULTILINE)
_ENTRY = re.compile(r"(?P<name>\w+)=(?P<dtype>[a-z]+\d*)\[(?P<shape>[\d,\s]*)\]")
# (true, pred): dtype and the axes behind the samples.
_USUAL: tuple[tuple[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]], ...] = (
    (("float32", (5,)), ("float32", (5,))),
    (("float32", (1,)), ("float32", (1,))),
    (("int32", ()), ("float32", (5,))),
    (("float32", ()), ("float32", ())),
    (("float32", (6, 5)), ("float32", (6, 5))),
    (("int32", (6,)), ("float32", (6, 5))),
    (("float32", (6, 6, 3)), ("float32", (6, 6, 3))),
    (("int32", (6, 6)), ("float32", (6, 6, 3))),
    (("float32", (1,)), ("float32", (3,))),
    (("int32", (5,)), ("int32", (5,))),
)


@dataclass(frozen=True)
class Operation:
    """An operation of a traced function: the line of the file, its name, and the shapes of its inputs."""

    line: int
    name: str
    shapes: list[tuple[int, ...]]


def innermost(frames: Iterable[tuple[types.FrameType, int]], names: set[str]) -> int | None:
    """The line of the first of the frames, from the inside out, that lies in the file with these names."""
    return next((line for one, line in frames if one.f_code.co_filename in names), None)


@dataclass(frozen=True)
class Inputs:
    """What the arrays of a call look like."""

    # Name, dtype and shape of each; its first axis is the samples' where it has `batch` entries.
    entries: tuple[tuple[str, str, tuple[int, ...]], ...]
    batch: int

    def draw(self, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Arrays for any number of samples; the same for the same seed."""
        rng = np.random.default_rng(seed)
        drawn = {}
        for name, dtype, shape in self.entries:
            size = (batch, *shape[1:]) if shape and shape[0] == self.batch else shape
            if dtype.startswith(("int", "uint")):
                drawn[name] = rng.integers(0, 3, size).astype(dtype)
            elif dtype == "bool":
                drawn[name] = rng.random(size) < 0.5
            else:
                drawn[name] = rng.uniform(0.05, 0.95, size).astype(dtype)
        return drawn


@dataclass
class Probe:
    """One live function, and where it stands."""

    root: Root
    function: Callable[..., Any]
    inputs: Inputs
    file: SourceFile
    names: set[str]  # Of the file, as a trace may spell it.

    @property
    def line(self) -> int:
        """Where the function begins."""
        return self.file.place(self.root.function.node).line


def probes(path: Path, given: Inputs | None) -> Iterator[Probe]:
    project = Project()
    file = project.file(path)
    roots = [root for root in roots_of(project, file) if root.true_name]
    if not roots:
        return
    module = imported(path)
    names = {str(path.resolve()), str(path), getattr(module, "__file__", "") or ""}
    for root in roots:
        function = _live(module, root)
        if function is None:
            continue
        inputs = given or described(file.text)
        why = "it ran with none of the usual shapes. Say --inputs."
        try:
            chosen = inputs if inputs is not None else _first_that_runs(function, root)
        except ArgumentChanged as changed:
            chosen, why = None, f"it changes its argument {changed.name!r} in place."
        if chosen is None:
            print(f"flatout check: {root.name} was not traced: {why}", file=sys.stderr)
            continue
        yield Probe(root, function, chosen, file, names)


def imported(path: Path) -> Any:
    """A file as a module, run now."""
    name = f"_flatout_check_{path.stem}_{abs(hash(str(path.resolve())))}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise CannotRun(f"{path} cannot be imported for --run. Expected a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CannotRun(
            f"{path} cannot be imported for --run. Received: {type(error).__name__}: {error}. Check it without --run."
        ) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _live(module: Any, root: Root) -> Callable[..., Any] | None:
    """The function itself, or the method of an object that can be made without arguments."""
    first, _, method = root.name.partition(".")
    found = getattr(module, first, None)
    if not method:
        code = getattr(found, "__code__", None)
        # Of two definitions of one name the module has one.
        is_other = code is not None and code.co_name == first and code.co_firstlineno != first_line(root.function.node)
        return found if callable(found) and code is not None and not is_other else None
    try:
        made: Callable[..., Any] | None = getattr(found(), method, None) if found is not None else None
    except Exception:
        return None
    return made


def _first_that_runs(function: Callable[..., Any], root: Root) -> Inputs | None:
    for inputs in usual(function, root.true_name, root.pred_name):
        try:
            value_and_gradient(function, inputs.draw(SIZES[0]), None)
        except ArgumentChanged:
            raise
        except Exception:
            continue
        return inputs
    return None


def described(text: str) -> Inputs | None:
    """The inputs of a `# inputs: y_true=int32[8] y_pred=float32[8, 10]` comment."""
    match = _COMMENT.search(text)
    return parse(match["spec"]) if match else None


def parse(spec: str) -> Inputs:
    """The inputs of `--inputs`."""
    entries = tuple(
        (match["name"], match["dtype"], tuple(int(size) for size in match["shape"].split(",") if size.strip()))
        for match in _ENTRY.finditer(spec)
    )
    if not entries:
        raise InvalidOption(
            f'The inputs cannot be read. Received: {spec!r}. Expected such as "y_true=int32[8] y_pred=float32[8,10]".'
        )
    sizes = [shape[0] for _, _, shape in entries if shape]
    return Inputs(entries, sizes[0] if sizes else 1)


def usual(function: Callable[..., Any], true: str, pred: str) -> Iterator[Inputs]:
    """The shapes that losses mostly have, for a function whose targets and outputs have these names."""
    others = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in (true, pred)
        and parameter.default is parameter.empty
        and parameter.kind == parameter.POSITIONAL_OR_KEYWORD
    ]
    for truth, guess in _USUAL:
        for dtype in ("int32", "float32") if others else ("int32",):
            entries = [(true, truth[0], (8, *truth[1])), (pred, guess[0], (8, *guess[1]))]
            entries += [(name, dtype, (8,)) for name in others]
            yield Inputs(tuple(entries), 8)
