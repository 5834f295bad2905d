"""The functions of a file as live objects, with inputs that they run with, and the lines that something came from."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.base.errors import CannotRun
from flatout.check.examining.root import Root
from flatout.check.examining.roots import roots_of
from flatout.pysource.source_file import Project, SourceFile
from flatout.pysource.trees import first_line
from flatout.vectorize.verify.gradients import ArgumentChanged, value_and_gradient

from .probe_inputs import Inputs, described, usual

# The batch sizes of a trace.
SIZES = (4, 8, 16)


@dataclass(frozen=True)
class Operation:
    """An operation of a traced function: the line of the file, its name, and the shapes of its inputs."""

    line: int
    name: str
    shapes: list[tuple[int, ...]]


def innermost(frames: Iterable[tuple[types.FrameType, int]], names: set[str]) -> int | None:
    """The line of the first of the frames, from the inside out, that lies in the file with these names."""
    return next((line for one, line in frames if one.f_code.co_filename in names), None)


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
