"""Whose line a thread is in, and for which part of a fit: told by the files and names of its frames.

Frames are read from the innermost outwards. What lies outside of the fit, such as the line of the script that called
it, is not looked at.
"""

from __future__ import annotations

import functools
import os
import queue
import selectors
import sys
import sysconfig
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_FLATOUT = f"{Path(__file__).absolute().parents[2]}{os.sep}".replace(os.sep, "/")
_STANDARD = tuple(
    f"{folder}{os.sep}".replace(os.sep, "/")
    for folder in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(os.__file__).parent)}
)
_INSTALLED = ("/site-packages/", "/dist-packages/")
# Libraries that may be installed as a link to their sources.
_LIBRARIES = ("keras", "jax", "jaxlib", "tensorflow", "torch", "numpy", "pandas")
# Code that came from no file and is the user's: cells, prompts. `-c` code is `<string>`, as is that of dataclasses.
_TYPED_IN = ("<stdin>", "<console>", "<ipython-input-", "<python-input-", "<doctest ", "<command-")
# What stands around the user's code in each part; of flatout's files, where it stands in for Keras'.
_PARTS = (
    ("/keras/src/callbacks/callback_list.py", "callbacks"),
    ("/keras/src/losses/", "loss"),
    ("/keras/src/metrics/", "metrics"),
    ("/keras/src/trainers/data_adapters/", "input"),
    ("/keras/src/trainers/epoch_iterator.py", "input"),
    ("/tensorflow/python/data/", "input"),
    ("/tensorflow/python/ops/script_ops.py", "input"),
    ("/torch/utils/data/", "input"),
    ("/grain/", "input"),
    (f"{_FLATOUT}data/", "input"),
)
_PARTS_OF_CLASSES = (("CompileLoss.", "loss"), ("CompileMetrics.", "metrics"))
_PARTS_OF_METHODS = {
    "compute_loss": "loss",
    "compute_metrics": "metrics",
}
_FITS = frozenset({"fit", "evaluate", "predict"})
# A thread whose innermost frame is here waits for another one.
_WAITING = frozenset(str(module.__file__) for module in (queue, selectors, threading))


class CodePlace(NamedTuple):
    """A line that a thread is in, and the part of the fit that it works for.

    Attributes:
        path: The file, or the name of a cell.
        line: The line in it.
        function: The function's name.
        part: "input", "step", "loss", "metrics", "callbacks" or "epoch-callbacks".
        is_of_user: Whether the line is the user's; else it is a library's, mostly Keras'.
    """

    path: str
    line: int
    function: str
    part: str
    is_of_user: bool


@dataclass(frozen=True)
class _CodeFile:
    """What the code of a file is."""

    is_of_user: bool = False
    is_keras: bool = False
    is_trainer: bool = False
    is_compiled_parts: bool = False
    is_passed_over: bool = False
    part: str | None = None


def place_of(frame: FrameType | None, entry: FrameType | None) -> CodePlace | None:
    """The line in which the thread of the fit is.

    Args:
        frame: The innermost frame of the thread.
        entry: A frame around the fit; it and what is older does not count.

    Returns:
        The innermost line of the user's inside of the fit, that of Keras if there is none; None outside of the fit.
    """
    frames: list[FrameType] = []
    while frame is not None and frame is not entry:
        frames.append(frame)
        frame = frame.f_back
    # The outermost one: a callback may call `evaluate`.
    fits = [at for at, one in enumerate(frames) if one.f_code.co_name in _FITS and _file_of(one).is_trainer]
    if fits:
        return _place_in(frames[: fits[-1] + 1], "step")
    return _place_in(frames, "step") if frame is not None else None


def place_beside(frame: FrameType | None) -> CodePlace | None:
    """The line in which another thread than that of the fit is, such as a worker's of a data pipeline."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _place_in(frames, "input")


def is_waiting(frame: FrameType) -> bool:
    """Whether a thread with this innermost frame waits for another thread."""
    return frame.f_code.co_filename in _WAITING


def _place_in(frames: list[FrameType], otherwise: str) -> CodePlace | None:
    """The user's innermost line, else Keras', else anybody's; the part is that of the outermost frame that has one."""
    at = next((at for at, one in enumerate(frames) if _is_of_user(one)), None)
    is_of_user = at is not None
    if at is None:
        at = next((at for at, one in enumerate(frames) if _file_of(one).is_keras), None)
    if at is None:
        at = next((at for at, one in enumerate(frames) if not _file_of(one).is_passed_over), None)
    if at is None:
        return None
    part = next((part for one in reversed(frames[at:]) if (part := _part_of(one)) is not None), otherwise)
    code = frames[at].f_code
    # None where Python has made the instruction itself.
    line = frames[at].f_lineno or code.co_firstlineno
    return CodePlace(code.co_filename, line, code.co_name, part, is_of_user)


def _part_of(frame: FrameType) -> str | None:
    code, file = frame.f_code, _file_of(frame)
    if file.part == "callbacks" and code.co_name.startswith("on_epoch_"):
        return "epoch-callbacks"
    if file.part is not None:
        return file.part
    if file.is_compiled_parts:
        return next((part for start, part in _PARTS_OF_CLASSES if code.co_qualname.startswith(start)), None)
    if file.is_keras or file.is_of_user:
        return _PARTS_OF_METHODS.get(code.co_name)
    return None


def _is_of_user(frame: FrameType) -> bool:
    if frame.f_code.co_filename == "<string>":
        return frame.f_globals.get("__name__") == "__main__" and "__file__" not in frame.f_globals
    return _file_of(frame).is_of_user


def _file_of(frame: FrameType) -> _CodeFile:
    return _code_file(frame.f_code.co_filename)


@functools.lru_cache(8192)
def _code_file(filename: str) -> _CodeFile:
    if filename.startswith("<"):
        return _CodeFile(is_of_user=filename.startswith(_TYPED_IN), is_passed_over=True)
    path = filename.replace(os.sep, "/")
    if not _is_of_library(path):
        # What autograph makes of the user's functions has lines of its own.
        is_made = "__autograph_generated_file" in path
        return _CodeFile(is_of_user=not is_made, is_passed_over=is_made)
    is_keras = "/keras/src/" in path
    is_ours = path.startswith(_FLATOUT)
    part = next((part for some, part in _PARTS if some in path), None)
    if is_ours and "callback" in path.rpartition("/")[2]:
        part = "callbacks"
    return _CodeFile(
        is_keras=is_keras,
        is_trainer=is_keras and path.endswith("/trainer.py"),
        is_compiled_parts=is_keras and path.endswith("/trainers/compile_utils.py"),
        is_passed_over=is_ours or path.startswith(_STANDARD),
        part=part,
    )


def _is_of_library(path: str) -> bool:
    if path.startswith((_FLATOUT, *_STANDARD)) or any(some in path for some in _INSTALLED):
        return True
    homes = (getattr(sys.modules.get(name), "__file__", None) for name in _LIBRARIES)
    return any(path.startswith(home.replace(os.sep, "/").rpartition("/")[0] + "/") for home in homes if home)
