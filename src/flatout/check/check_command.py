"""The arguments of `flatout check`, and what is printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flatout.base.errors import InvalidOption
from flatout.check.examining.examine import check_paths
from flatout.check.examining.findings_output import FORMATS, as_json, as_sarif, as_text
from flatout.check.rules.catalogue import FAMILIES, RULES
from flatout.check.rules.rule import BACKENDS, SEVERITIES, Backend, Finding

from .check_config import Config, codes_of, current_backend, read_config

_EXAMPLES = """\
examples:
  flatout check losses.py                   what is slow, wrong or impossible to compile, and why
  flatout check src --backend torch         severities as torch has them (default: the backend that Keras is set to)
  flatout check losses.py --diff            show the rewrites
  flatout check losses.py --fix             write them
  flatout check losses.py --run             also import the file and trace its losses at several batch sizes
  flatout check src --format sarif > check.sarif
  flatout check --explain FO303             the page of one rule

A comment `# flatout: noqa[FO101]` on a line excuses it. [tool.flatout] in pyproject.toml takes backend, select, ignore,
exclude, severity and per-file-ignores. The exit code is 1 if something was found, 2 if the arguments are wrong.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `flatout check`; returns the exit status."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.explain:
        return _explain(arguments.explain)
    if not arguments.paths:
        parser.error("expected files or folders to check. Received nothing.")
    return _check(arguments)


def _check(arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    backend: Backend = config.backend or current_backend()
    findings = check_paths(arguments.paths, backend, config.exclude)
    if arguments.run:
        from flatout.check.probing.probe_run import traced

        findings = traced(findings, arguments.paths, backend, arguments.inputs)
    findings = [one for one in findings if _is_wanted(one, config)]
    if arguments.diff or arguments.fix:
        from flatout.check.fixing.fix import fix_paths

        more = {"unsafe": arguments.unsafe_fixes, "inputs": arguments.inputs}
        diff, summary = fix_paths(arguments.paths, findings, write=arguments.fix, **more)
        print(diff if arguments.diff else "", end="")
        print(summary, file=sys.stderr)
        if arguments.diff:
            return int(bool(diff))
        findings = [one for one in check_paths(arguments.paths, backend, config.exclude) if _is_wanted(one, config)]
    formatted = {"json": as_json, "sarif": as_sarif}.get(arguments.format)
    print(formatted(findings) if formatted else as_text(findings, backend))
    return int(bool(findings))


def _config(arguments: argparse.Namespace) -> Config:
    first = Path(arguments.paths[0])
    config = Config() if arguments.isolated else read_config(first if first.is_dir() else first.parent)
    ignored = (*config.ignore, *codes_of(arguments.ignore or "", "--ignore"))
    selected = codes_of(arguments.select or "", "--select")
    said = {"backend": arguments.backend, "select": selected, "ignore": ignored, "severity": arguments.severity}
    return replace(config, **{name: value for name, value in said.items() if value})


def _is_wanted(finding: Finding, config: Config) -> bool:
    is_mild = SEVERITIES.index(finding.severity) > SEVERITIES.index(config.severity)
    is_selected = not config.select or finding.code.startswith(config.select)
    ignored = [codes for pattern, codes in config.per_file_ignores if Path(finding.path).match(pattern)]
    return is_selected and not is_mild and not any(map(finding.code.startswith, (config.ignore, *ignored)))


def _explain(code: str) -> int:
    known = code.upper()
    if known == "ALL":
        for start, about in FAMILIES.items():
            print(f"{start}xx: {about}")
            for rule in (one for one in RULES.values() if one.code.startswith(start)):
                print(f"  {rule.code}  {rule.summary}")
        return 0
    if known not in RULES:
        raise InvalidOption(f"no rule {code!r}. `flatout check --explain all` lists them.")
    print(RULES[known].page, end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flatout check",
        description="Find what makes a custom loss, metric, train step or callback slow, wrong or impossible to "
        "compile.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", type=Path, help="files, or folders with Python files")
    parser.add_argument("--backend", choices=BACKENDS, help="whose severities (default: KERAS_BACKEND, keras.json)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="text, json or sarif")
    parser.add_argument("--select", metavar="CODES", help="only these, such as FO1,FO303")
    parser.add_argument("--ignore", metavar="CODES", help="not these")
    parser.add_argument("--severity", choices=SEVERITIES, help="the mildest to report (default: info)")
    parser.add_argument("--run", action="store_true", help="also import the files and trace what they define")
    parser.add_argument(
        "--inputs", metavar="SPEC", help='for --run and --fix, such as "y_true=int32[8] y_pred=float32[8,10]"'
    )
    parser.add_argument("--diff", action="store_true", help="show the rewrites; write nothing")
    parser.add_argument("--fix", action="store_true", help="write the rewrites")
    parser.add_argument("--unsafe-fixes", action="store_true", help="also those that differ on some inputs")
    parser.add_argument("--isolated", action="store_true", help="ignore pyproject.toml")
    parser.add_argument("--explain", metavar="CODE", help="print the page of a rule; 'all' lists the rules")
    return parser
