"""An exception that crosses processes with the frames of the user's code."""

from __future__ import annotations

import ast
import pickle
import traceback
import types
from dataclasses import dataclass

# The file, the function, and where in the file.
_Frame = tuple[str, str, dict[str, int]]


@dataclass(frozen=True)
class Raised:
    """An exception as it is sent; `pickled` is None if only its text can be."""

    pickled: bytes | None
    text: str
    frames: list[_Frame]
    cause: Raised | None
    context: Raised | None
    hides_context: bool


def described(error: BaseException, skip: int = 0) -> Raised:
    """Take an exception down, without the outermost `skip` frames."""
    tracebacks = traceback.extract_tb(error.__traceback__)[skip:]
    return Raised(
        _pickled(error),
        "".join(traceback.format_exception_only(error)).strip(),
        [(frame.filename, frame.name, _place(frame)) for frame in tracebacks],
        None if error.__cause__ is None else described(error.__cause__),
        None if error.__context__ is None else described(error.__context__),
        error.__suppress_context__,
    )


def _place(frame: traceback.FrameSummary) -> dict[str, int]:
    """As a node of a syntax tree says it."""
    line = frame.lineno or 1
    ends = {"end_lineno": frame.end_lineno or line, "end_col_offset": frame.end_colno or 0}
    return {"lineno": line, "col_offset": frame.colno or 0, **ends}


def rebuilt(raised: Raised) -> BaseException:
    """The exception, with a traceback through the lines of the user's files."""
    error = RuntimeError(raised.text) if raised.pickled is None else _unpickled(raised.pickled)
    error.__cause__ = None if raised.cause is None else rebuilt(raised.cause)
    error.__context__ = None if raised.context is None else rebuilt(raised.context)
    error.__suppress_context__ = raised.hides_context
    below: types.TracebackType | None = None
    for frame in reversed(raised.frames):
        below = _traceback_entry(frame, below)
    return error.with_traceback(below)


def _pickled(error: BaseException) -> bytes | None:
    """The exception, or what it holds if its constructor takes something else; None if neither can be sent."""
    for content in (error, (type(error), error.args, vars(error))):
        try:
            pickled = pickle.dumps(content)
            if type(_unpickled(pickled)) is type(error):
                return pickled
        except Exception:
            continue
    return None


def _unpickled(pickled: bytes) -> BaseException:
    content = pickle.loads(pickled)
    if isinstance(content, BaseException):
        return content
    kind, arguments, attributes = content
    error: BaseException = kind.__new__(kind, *arguments)
    vars(error).update(attributes)
    return error


def _traceback_entry(frame: _Frame, below: types.TracebackType | None) -> types.TracebackType:
    """A traceback entry that shows a line of the user's file, as if it had run here."""
    filename, name, place = frame
    statement = ast.Raise(exc=ast.Name("error", ctx=ast.Load(), **place), cause=None, **place)
    code = compile(ast.Module([statement], type_ignores=[]), filename, "exec").replace(co_name=name)
    try:
        exec(code, {"error": StopAsyncIteration})
    except StopAsyncIteration as error:
        here = error.__traceback__ and error.__traceback__.tb_next
    assert here is not None
    return types.TracebackType(below, here.tb_frame, here.tb_lasti, here.tb_lineno)
