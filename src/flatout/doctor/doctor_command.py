"""`flatout doctor`: runs a script unchanged, and takes its first `fit` apart."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flatout.base.errors import DiagnosisFailed
from flatout.runner import import_hook, notice, script
from flatout.runner.target import split_target
from flatout.seam import stock_methods as stock
from flatout.training.arguments import bound

from .diagnose import DEFAULT_BUDGET, examine
from .diagnosis import Diagnosis
from .showing.terminal import show

_EXAMPLES = """\
examples:
  flatout doctor train.py --epochs 5                 a script with its own arguments
  flatout doctor --html report.html train.py         and a page to look at, in one file
  flatout doctor --continue train.py                 and go on with the script, as if nothing had happened
  flatout doctor --budget 20 -m package.train        quicker, and less exact
"""
_WITH_VALUE = ("--html", "--json", "--trace", "--budget")


class _Stop(SystemExit):
    """The diagnosis is made; the script ends here."""


def main(argv: list[str] | None = None) -> int:
    """Run `flatout doctor`; returns the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = _parser()
    ours, target = split_target(arguments, _WITH_VALUE, parser)
    given = parser.parse_args(ours)
    if target is None:
        parser.print_help(sys.stderr)
        return 2
    for path in (given.html, given.json, given.trace):
        if path is not None and not path.absolute().parent.is_dir():
            parser.error(f"cannot write {path}: there is no folder {path.absolute().parent}")
    if not given.budget > 0:
        parser.error(f"argument --budget: expected seconds above 0. Received: {given.budget}")
    paths = {name: getattr(given, name) and getattr(given, name).absolute() for name in ("html", "json", "trace")}
    doctor = _Doctor(given.budget, given.goes_on, paths)
    import_hook.call_after_import("keras", lambda _: stock.replace_methods(doctor.conduct))
    try:
        script.run(target)
    except _Stop as stop:
        return int(stop.code or 0)
    except script.CannotOpen as error:
        print(error, file=sys.stderr)
        return 2
    if not doctor.has_seen_a_fit:
        notice.tell("the script ended without a call of model.fit: there is nothing to diagnose.")
        return 1
    return 0


class _Doctor:
    """In the place of Keras' methods: the first fit is examined, everything else is Keras' own."""

    def __init__(self, budget: float, goes_on: bool, paths: dict[str, Path | None]):
        self._budget, self._goes_on, self._paths = budget, goes_on, paths
        self.has_seen_a_fit = False

    def conduct(self, method: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if method != "fit" or self.has_seen_a_fit:
            return stock.original(method)(model, *args, **kwargs)
        self.has_seen_a_fit = True
        call = bound("fit", args, kwargs)
        status = 0
        try:
            with _progress() as tell:
                diagnosis, x = examine(model, call, self._budget, tell)
            self._tell(diagnosis)
        except DiagnosisFailed as error:
            status, x = 2, error.x
            print(f"flatout doctor: {error}", file=sys.stderr)
        if not self._goes_on:
            raise _Stop(status)
        return stock.original("fit")(model, **{**call, "x": x})

    def _tell(self, diagnosis: Diagnosis) -> None:
        show(diagnosis, Console(stderr=True))
        savers = {"html": diagnosis.save_html, "json": diagnosis.save_json, "trace": diagnosis.save_trace}
        for name, path in self._paths.items():
            if path is not None:
                savers[name](path)
                notice.tell(f"wrote {path}")


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    columns = (TextColumn("flatout doctor"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=1.0)

        def tell(what: str, done: float) -> None:
            progress.update(task, description=what, completed=done)

        yield tell


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flatout doctor",
        usage="flatout doctor [options] SCRIPT|-m MODULE|-c CODE|- [arguments]",
        description="Run a script unchanged, take its first model.fit apart by measurement, say what holds it back.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page, in one file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report for machines")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write some steps for Perfetto or chrome://tracing")
    parser.add_argument(
        "--budget",
        type=float,
        default=DEFAULT_BUDGET,
        metavar="SECONDS",
        help=f"about how long it may take; default: {DEFAULT_BUDGET:.0f}",
    )
    parser.add_argument(
        "--continue",
        dest="goes_on",
        action="store_true",
        help="go on with the script afterwards, as if nothing had happened",
    )
    return parser
