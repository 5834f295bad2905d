"""The command line: `flatout` and `python -m flatout`."""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from flatout.base.errors import FlatoutError
from flatout.base.options import Options, current
from flatout.base.version import __version__
from flatout.runner import notice, script, switch
from flatout.runner.target import split_target

_DESCRIPTION = "Run a Keras 3 program, unchanged, at the speed of the device."
_EXAMPLES = """\
other commands:
  flatout bench [NAME...] [--json FILE]   stock Keras and flatout side by side in one run
  flatout demo                            the reference workload, end to end
  flatout check PATH... [--diff|--fix]    what makes losses, metrics and train steps slow or wrong
  flatout doctor SCRIPT [--html FILE]     where the time of its first fit goes, and what a change would gain
  Each has its own --help. A script called "bench" is run as ./bench.

examples:
  flatout train.py --epochs 5             a script with its own arguments
  python -m flatout train.py --epochs 5   the same
  flatout --explain train.py              and say for each call what was done and why
  flatout --strict train.py               and stop where stock Keras would have to run
  flatout --vectorize train.py            and run losses with loops as array code, once verified
  flatout --workers 4 train.py            and divide each batch among four devices or processes
  flatout -m package.train --epochs 5     a module, as in python -m
  flatout -c "import train; train.main()"
  flatout - < train.py                    from stdin
  FLATOUT=0 flatout train.py              plain Python and stock Keras, to compare

A last line on stderr says what was accelerated. The exit code and tracebacks are the program's own.
"""

# Imported when they are asked for: they take their time.
_COMMANDS = {
    "bench": "flatout.bench.bench_command",
    "demo": "flatout.bench.demo",
    "check": "flatout.check.check_command",
    "doctor": "flatout.doctor.doctor_command",
}
# Options of ours that are followed by their value.
_WITH_VALUE = {
    "workers": ("N|auto", "divide each batch among so many devices, or processes"),
    "launcher": ("local|ray", "what starts processes; Ray by default if RAY_ADDRESS is set"),
    "restarts": ("N", "begin again so often, from the last checkpoint, when a process is lost"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code, unless the program exits by itself."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments else ""
    if command not in _COMMANDS:
        return _run(arguments[1:] if command == "run" else arguments)
    try:
        status: int = importlib.import_module(_COMMANDS[command]).main(arguments[1:])
    except FlatoutError as error:
        print(f"flatout {command}: {error}", file=sys.stderr)
        return 2
    return status


def _run(arguments: list[str]) -> int:
    parser = _parser()
    ours, target = split_target(arguments, [f"--{name}" for name in _WITH_VALUE], parser)
    flags = parser.parse_args(ours)
    if target is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        switches = {name: True for name in ("strict", "vectorize") if getattr(flags, name)}
        switch.enable(**switches, **{name: getattr(flags, name) for name in _WITH_VALUE})
    except FlatoutError as error:
        parser.error(str(error))
    if current().enabled:
        notice.announce_at_exit(flags.explain)
    try:
        script.run(target)
    except script.CannotOpen as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _checked(name: str, text: str) -> Any:
    try:
        options: dict[str, Any] = {name: text}
        return getattr(Options(**options), name)
    except FlatoutError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flatout",
        usage="flatout [run] [options] SCRIPT|-m MODULE|-c CODE|- [arguments]",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--explain", action="store_true", help="say for each call which engine ran it, and why")
    parser.add_argument("--strict", action="store_true", help="raise FallbackRefused instead of running stock Keras")
    parser.add_argument(
        "--vectorize", action="store_true", help="run losses and metrics that loop as array code, once verified"
    )
    for name, (values, explained) in _WITH_VALUE.items():
        parser.add_argument(f"--{name}", type=functools.partial(_checked, name), metavar=values, help=explained)
    parser.add_argument("--version", action="version", version=f"flatout {__version__}")
    return parser
