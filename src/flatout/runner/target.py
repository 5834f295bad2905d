"""What a command shall run, found between our own flags and the program's arguments."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

_FLAGS: dict[str, Literal["module", "code"]] = {"-m": "module", "-c": "code"}


@dataclass(frozen=True)
class Target:
    """What to run: a path (also of a folder or zip file with a `__main__.py`), a module's name, code, or `"-"`."""

    kind: Literal["file", "module", "code", "stdin"]
    what: str
    arguments: tuple[str, ...] = ()


def split_target(
    arguments: list[str], with_value: Collection[str], parser: argparse.ArgumentParser
) -> tuple[list[str], Target | None]:
    """Our own flags, and the `Target` after them; everything behind it is the program's, whatever it looks like.

    Args:
        arguments: Of the command line.
        with_value: Flags of ours that are followed by their value.
        parser: Tells what is wrong.
    """
    for at, argument in enumerate(arguments):
        if at and arguments[at - 1] in with_value:
            continue
        ours, rest = arguments[:at], tuple(arguments[at + 1 :])
        for flag, kind in _FLAGS.items():
            if argument == flag:
                if not rest:
                    parser.error(f"argument {flag}: expected the {kind} to run behind it. Received nothing.")
                return ours, Target(kind, rest[0], rest[1:])
            if argument.startswith(flag):
                return ours, Target(kind, argument[2:], rest)
        if argument == "-":
            return ours, Target("stdin", "-", rest)
        if argument == "--" and rest:
            return ours, Target("file", rest[0], rest[1:])
        if not argument.startswith("-"):
            return ours, Target("file", argument, rest)
    return arguments, None
