"""`flatout check --diff` and `--fix`: the rewrites of the findings, shown or written."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from flatout.base import disk_cache
from flatout.check.examining.examine import check_paths, python_files
from flatout.check.examining.findings_output import shown
from flatout.check.probing.live_functions import Inputs, parse
from flatout.check.rules.rule import Finding
from flatout.pysource.source_file import Project, SourceFile

from .array_rewrites import Rewritten, rewritten_functions, with_rewrites
from .line_fixes import edited, with_constants_outside, with_expressions_once, without_log_lines

# Each works on the findings of the file as the one before left it.
_FIXES = {"FO203": without_log_lines, "FO301": with_constants_outside, "FO306": with_expressions_once}


def fix_paths(
    paths: Iterable[Path], findings: list[Finding], *, write: bool, unsafe: bool = False, inputs: str | None = None
) -> tuple[str, str]:
    """Rewrite what can be rewritten in the files, on disk only with `write`: the diff, and what was done and why."""
    given = parse(inputs) if inputs else None
    diffs: list[str] = []
    notes: list[str] = []
    for path in python_files(paths):
        own = [one for one in findings if Path(one.path).resolve() == path.resolve()]
        if not own:
            continue
        before = SourceFile.read(path)
        after, rewrites = _fixed(before, own, unsafe, given)
        for one in rewrites:
            done = "rewritten" if one.source is not None else "kept"
            notes.append(f"{shown(str(path))}: {one.name} {done}: {one.reason}")
        if after != before.text:
            diffs.append(_diff(path, before.text, after))
            if write:
                disk_cache.put(path.resolve(), after.encode())
    count = len(diffs)
    verb = "changed" if write else "would change"
    notes.append(f"{count} file{'s' * (count != 1)} {verb}.")
    return "".join(diffs), "\n".join(notes)


def _fixed(
    file: SourceFile, findings: list[Finding], unsafe: bool, given: Inputs | None
) -> tuple[str, list[Rewritten]]:
    codes = {one.code for one in findings}
    # A rewrite loses comments and layout: it is for what a change of single lines does not mend.
    left = _findings_in(file.path, _with_lines_changed(file.path, file.text, codes))
    rewrites = rewritten_functions(file, [one for one in left if one.code in codes], unsafe, given)
    return _with_lines_changed(file.path, with_rewrites(file, rewrites), codes), rewrites


def _with_lines_changed(path: Path, text: str, codes: set[str]) -> str:
    for code, fix in _FIXES.items():
        if code in codes:
            places = {(one.line, one.column) for one in _findings_in(path, text) if one.code == code}
            text = edited(text, fix(SourceFile(path, text), places))
    return text


def _findings_in(path: Path, text: str) -> list[Finding]:
    """The findings of a file, had it another text than it has on disk."""
    project = Project()
    project.put(SourceFile(path, text))
    found = check_paths([path], "torch", project=project)
    return [one for one in found if Path(one.path).resolve() == path.resolve()]


def _diff(path: Path, before: str, after: str) -> str:
    name = shown(str(path))
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
