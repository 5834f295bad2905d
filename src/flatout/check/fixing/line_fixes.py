"""Fixes that need no run to be verified: log lines go, constants are loaded once, expressions are computed once.

The text is changed by place, so that comments and layout stay as they are.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from flatout.pysource.repeats import repeated_work
from flatout.pysource.source_file import SourceFile
from flatout.pysource.trees import dotted, first_line, given_values, last_name, method_name, names_in, root_of, walk

_PURE = frozenset({
    "float", "int", "str", "len", "round", "abs", "repr", "format", "max", "min", "sum", "tuple", "list",
})  # fmt: skip
_PURE_METHODS = frozenset(["item", "numpy", "tolist", "mean", "max", "min", "sum", "detach", "cpu", "format", "std"])
_PURE_MODULES = frozenset(["ops", "keras", "tf", "K", "torch", "jnp", "np", "numpy", "tensorflow", "jax", "math"])
_CHANGING = frozenset({
    "append", "update", "pop", "sort", "fill", "insert", "extend", "clear", "setdefault", "remove", "add", "drop",
    "resize", "partition",
})  # fmt: skip
# Lines and columns at which a rule found something.
Places = set[tuple[int, int]]


class Edit(NamedTuple):
    """Another text from one place to another."""

    begin: int
    end: int
    text: str = ""


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after all changes; of two that overlap, the one that begins first."""
    parts: list[str] = []
    at = 0
    for one in sorted(edits, key=lambda edit: edit.begin):
        if one.begin >= at:
            parts += [text[at : one.begin], one.text]
            at = one.end
    return "".join([*parts, text[at:]])


def without_log_lines(file: SourceFile, places: Places) -> Iterator[Edit]:
    """Remove the prints and log lines that were found, where nothing else happens on them."""
    for block in (part for node in walk(file.tree) for _, part in ast.iter_fields(node) if isinstance(part, list)):
        doomed = [one for one in block if _is_log_line(file, one, places)]
        for one in doomed:
            # A block must not be empty.
            is_last = len(doomed) == len(block) and one is block[-1]
            text = file.indent(one) + "pass\n" if is_last else ""
            begin, end = file.line_begin(_lead_of(file, one)), file.line_begin(one.end_lineno + 1)
            yield Edit(begin, end, text)


def _is_log_line(file: SourceFile, node: object, places: Places) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return file.place(node.value) in places and _only_reads(node.value) and _is_alone(file, node)


def _only_reads(call: ast.Call) -> bool:
    for node in walk(given_values(call)):
        if isinstance(node, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await, ast.Lambda)):
            return False
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            is_pure = name in _PURE or name.split(".")[0] in _PURE_MODULES or method_name(node) in _PURE_METHODS
            if not is_pure:
                return False
    return True


def with_constants_outside(file: SourceFile, places: Places) -> Iterator[Edit]:
    """Move the loads that were found above their functions, where they use nothing of the function's own."""
    taken = set(re.findall(r"\w+", file.text))
    known = set(dir(builtins))
    for statement in file.tree.body:
        above = file.line_begin(_lead_of(file, statement))
        outside = ""
        inner = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        for function in (one for one in inner if isinstance(one, ast.FunctionDef)):
            for line in _constant_lines(file, function, places, known):
                constant = _fresh(f"_{dotted(line.targets[0]).upper()}", taken)
                lead, begin = file.line_begin(_lead_of(file, line)), file.line_begin(line.lineno)
                comments = [one.strip() + "\n" for one in file.text[lead:begin].splitlines() if one.strip()]
                end = file.line_begin((line.end_lineno or 0) + 1)
                value, behind = _value_span(file, line)
                load = file.text[value:end].replace("\n" + file.indent(line), "\n")
                outside += f"\n\n{''.join(comments)}{constant} = {load}"
                yield from (Edit(lead, begin), Edit(value, behind, constant))
        if outside:
            yield Edit(above, above, outside)
        known |= _bound(statement)


def _value_span(file: SourceFile, line: ast.Assign) -> tuple[int, int]:
    """Where the value of an assignment stands, with the brackets around it."""
    behind_target, end = file.span(line.targets[0])[1], file.span(line)[1]
    equals = re.compile(r"\s*=\s*").match(file.text, behind_target)
    return (equals.end() if equals else behind_target), end


def _constant_lines(
    file: SourceFile, function: ast.FunctionDef, places: Places, known: set[str]
) -> Iterator[ast.Assign]:
    for line in function.body:
        if not isinstance(line, ast.Assign) or len(line.targets) != 1 or not _is_alone(file, line):
            continue
        target = line.targets[0]
        loads = any(isinstance(one, ast.Call) and file.place(one) in places for one in walk(line.value))
        names = names_in(line.value)
        if not isinstance(target, ast.Name) or not loads or not names <= known or names & _local_names(function):
            continue
        if _stays(target.id, function):
            yield line


def _local_names(function: ast.FunctionDef) -> set[str]:
    return _parameters(function) | {name for node in walk(function.body) for name in _bound(node)}


def _parameters(function: ast.FunctionDef) -> set[str]:
    return {one.arg for one in walk(function.args) if isinstance(one, ast.arg)}


def _bound(node: ast.AST) -> set[str]:
    """The names that a statement binds."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(one.asname or one.name).split(".")[0] for one in node.names}
    if isinstance(node, ast.Assign):
        return names_in(node.targets)
    if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.For)) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def _stays(name: str, function: ast.FunctionDef) -> bool:
    """Whether a function neither assigns a name twice nor changes what it stands for."""
    assigned = 0
    for node in walk(function.body):
        if isinstance(node, ast.Assign):
            assigned += sum(dotted(root_of(target)) == name for target in node.targets)
        elif isinstance(node, ast.AugAssign) and dotted(node.target).split(".")[0] == name:
            return False
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changes = node.func.attr in _CHANGING or any(one.arg == "inplace" for one in node.keywords)
            if changes and dotted(node.func.value).split(".")[0] == name:
                return False
    return assigned == 1


def with_expressions_once(file: SourceFile, places: Places) -> Iterator[Edit]:
    """Give the expressions that were found a name, before the statement that needs them first."""
    taken = set(re.findall(r"\w+", file.text))
    for function in (node for node in walk(file.tree) if isinstance(node, ast.FunctionDef)):
        for second, text, _ in repeated_work(function, file):
            named = _named(file, function, second, text, taken) if file.place(second) in places else []
            if named:
                yield from named
                break


def _named(file: SourceFile, function: ast.FunctionDef, second: ast.Call, text: str, taken: set[str]) -> list[Edit]:
    """The changes that compute an expression once; none where its parts are not all known before its first use."""
    same = "".join(text.split())
    statements = [one for one in function.body if not isinstance(one, ast.FunctionDef)]
    uses = [
        (statement, one)
        for statement in statements
        for one in walk(statement)
        if isinstance(one, ast.Call) and "".join(file.code(one).split()) == same
    ]
    if not uses:
        return []
    first = uses[0][0]
    before = {name for statement in function.body[: function.body.index(first)] for name in _bound(statement)}
    if not names_in(second) & _local_names(function) <= before | _parameters(function):
        return []
    title = last_name(second.func)
    name = _fresh(f"{title}_once" if title else "computed_once", taken)
    place = file.line_begin(first_line(first))
    return [
        Edit(place, place, f"{file.indent(first)}{name} = {text}\n"),
        *(Edit(*file.span(one), name) for _, one in uses),
    ]


def _fresh(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate


def _lead_of(file: SourceFile, node: ast.stmt) -> int:
    """The first of the blank lines and comments that stand above a statement and belong to it."""
    number = first_line(node)
    while number > 1:
        line = file.lines[number - 2]
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if stripped and (not stripped.startswith("#") or indent > node.col_offset):
            break
        number -= 1
    return number


def _is_alone(file: SourceFile, node: ast.stmt) -> bool:
    """Whether nothing else stands on the lines of a statement."""
    begin, end = file.span(node)
    before = file.text[file.line_begin(node.lineno) : begin]
    behind = file.text[end : file.line_begin((node.end_lineno or 0) + 1)]
    return not before.strip() and re.fullmatch(r"\s*(#.*)?\s*", behind) is not None
