"""Runs a script, a module, a piece of code or stdin as `python` itself would: same `__main__`, same `sys`."""

# ruff: noqa: PTH109, PTH118, PTH120
# Paths stay the strings that Python itself would show; pathlib would tidy them up.

from __future__ import annotations

import builtins
import importlib.machinery
import io
import linecache
import os
import pkgutil
import runpy
import sys
import textwrap
from types import CodeType, ModuleType
from typing import Any

from . import tracebacks as frames
from .target import Target


class CannotOpen(Exception):
    """The script's file cannot be read; the message is Python's own."""


def run(target: Target) -> None:
    """Run the target as `__main__` and let its SystemExit or error pass."""
    try:
        code = _prepare(target)
    except SyntaxError as error:
        frames.hide_ours(error, None)  # Nothing of the program has run yet.
        raise
    try:
        if code is not None:
            exec(code, vars(sys.modules["__main__"]))
        else:
            # What `python -m` itself calls; runpy.run_module would run the code outside of sys.modules["__main__"].
            runner: Any = runpy
            runner._run_module_as_main(*((target.what,) if target.kind == "module" else ("__main__", False)))
    except SystemExit:
        raise
    except BaseException as error:
        # The traceback starts in this frame; what comes after it is what plain Python would show.
        frames.hide_ours(error, error.__traceback__ and error.__traceback__.tb_next)
        raise


def _prepare(target: Target) -> CodeType | None:
    """Set up `sys` and `__main__`; returns the code to run in it, or None if runpy shall find it."""
    main = _new_main()
    first = {"module": "-m", "code": "-c", "stdin": "-"}.get(target.kind, target.what)
    sys.argv[:] = [first, *target.arguments]
    if target.kind == "module":
        _set_first_path(os.getcwd())
        return None
    if target.kind == "code":
        _set_first_path("")
        # 3.14 removes common indentation from -c code.
        text = textwrap.dedent(target.what) if sys.version_info >= (3, 14) else target.what
        if sys.version_info >= (3, 13):
            # Since 3.13 a traceback shows the lines of -c code.
            linecache.cache["<string>"] = (len(text), None, text.splitlines(keepends=True), "<string>")
        return compile(text, "<string>", "exec", dont_inherit=True)
    if target.kind == "stdin":
        _set_first_path("")
        vars(main).update(__file__="<stdin>", __cached__=None)
        return compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True)
    # Not os.path.abspath: `python ./a.py` gives __file__ as `/here/./a.py`.
    path = os.path.join(os.getcwd(), target.what)
    if pkgutil.get_importer(path) is not None:
        _set_first_path(path, always=True)
        return None
    # The folder of the file itself if the script is a link to it, as Python does.
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    return _read_file(path, main)


def _new_main() -> ModuleType:
    main = ModuleType("__main__")
    vars(main).update(__loader__=importlib.machinery.BuiltinImporter, __builtins__=builtins)
    if sys.version_info < (3, 14):
        vars(main)["__annotations__"] = {}
    sys.modules["__main__"] = main
    return main


def _set_first_path(folder: str, always: bool = False) -> None:
    """Replace what Python put first on the path for flatout itself; with `-P` it put nothing there."""
    if not sys.flags.safe_path:
        sys.path[0] = folder
    elif always:
        sys.path.insert(0, folder)


def _read_file(path: str, main: ModuleType) -> CodeType:
    try:
        with io.open_code(path) as file:
            contents = file.read()
    except OSError as error:
        raise CannotOpen(
            f"{sys.orig_argv[0]}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        ) from error
    compiled = pkgutil.read_code(io.BytesIO(contents))
    kind = importlib.machinery.SourceFileLoader if compiled is None else importlib.machinery.SourcelessFileLoader
    vars(main).update(__file__=path, __cached__=None, __loader__=kind("__main__", path))
    return compile(contents, path, "exec", dont_inherit=True) if compiled is None else compiled
