"""Fixes that need no proof by running: log lines go, constants are loaded once, expressions are computed once."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator

import libcst as cst

from flatout.check.rules.rule import Finding
from flatout.pysource.repeats import repeated_work
from flatout.pysource.source_file import SourceFile, children_of, dotted, walk

_PURE = frozenset(
    {"float", "int", "str", "len", "round", "abs", "repr", "format", "max", "min", "sum", "tuple", "list"}
)
_PURE_METHODS = frozenset(["item", "numpy", "tolist", "mean", "max", "min", "sum", "detach", "cpu", "format", "std"])
_PURE_MODULES = frozenset(["ops", "keras", "tf", "K", "torch", "jnp", "np", "numpy", "tensorflow", "jax", "math"])
_CHANGING = frozenset(
    [
        "append",
        "update",
        "pop",
        "sort",
        "fill",
        "insert",
        "extend",
        "clear",
        "setdefault",
        "remove",
        "add",
        "drop",
        "resize",
        "partition",
    ]
)


def without_log_lines(file: SourceFile, findings: list[Finding]) -> cst.Module:
    """Remove the prints and log lines that FO203 found, where nothing else happens on them."""
    places = {(one.line, one.column) for one in findings if one.code == "FO203"}
    doomed: set[int] = set()
    for node in walk(file.tree):
        if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 and isinstance(node.body[0], cst.Expr):
            call = node.body[0].value
            place = file.place(call)
            if isinstance(call, cst.Call) and (place.line, place.column) in places and _only_reads(call):
                doomed.add(id(node))
    return _visited(file.tree, _Remove(doomed)) if doomed else file.tree


def _only_reads(call: cst.Call) -> bool:
    for argument in call.args:
        for node in walk(argument.value):
            if isinstance(node, (cst.NamedExpr, cst.Yield, cst.Await, cst.Lambda)):
                return False
            if isinstance(node, cst.Call):
                name = dotted(node.func)
                method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
                if not (name in _PURE or name.split(".")[0] in _PURE_MODULES or method in _PURE_METHODS):
                    return False
    return True


class _Remove(cst.CSTTransformer):
    def __init__(self, doomed: set[int]):
        super().__init__()
        self._doomed = doomed

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        return cst.RemoveFromParent() if id(original_node) in self._doomed else updated_node

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if updated_node.body:
            return updated_node
        return updated_node.with_changes(body=[cst.parse_statement("pass")])


def with_constants_outside(file: SourceFile, findings: list[Finding]) -> cst.Module:
    """Move the loads that FO301 found above their functions, where they use nothing of the function's own."""
    places = {(one.line, one.column) for one in findings if one.code == "FO301"}
    body: list[cst.BaseStatement | cst.SimpleStatementLine] = []
    taken = {node.value for node in walk(file.tree) if isinstance(node, cst.Name)}
    known = set(dir(builtins))
    changed = False
    for statement in file.tree.body:
        for function in _functions(statement):
            for line in _constant_lines(file, function, places, known):
                assignment = line.body[0]
                assert isinstance(assignment, cst.Assign)
                name = dotted(assignment.targets[0].target)
                constant = _fresh(f"_{name.upper()}", taken)
                blank = [cst.EmptyLine(indent=False), cst.EmptyLine(indent=False)]
                outside = line.with_changes(
                    body=[assignment.with_changes(targets=[cst.AssignTarget(cst.Name(constant))])],
                    leading_lines=[*blank, *[one for one in line.leading_lines if one.comment]],
                )
                inside = line.with_changes(body=[assignment.with_changes(value=cst.Name(constant))], leading_lines=[])
                body.append(outside)
                replaced = _visited(statement, _Replace({id(line): inside}))
                assert isinstance(replaced, (cst.FunctionDef, cst.ClassDef))
                statement = replaced
                changed = True
        body.append(statement)
        known |= _bound(statement)
    return file.tree.with_changes(body=body) if changed else file.tree


def _functions(statement: cst.CSTNode) -> Iterator[cst.FunctionDef]:
    if isinstance(statement, cst.FunctionDef):
        yield statement
    elif isinstance(statement, cst.ClassDef):
        for inner in statement.body.body:
            if isinstance(inner, cst.FunctionDef):
                yield inner


def _constant_lines(
    file: SourceFile, function: cst.FunctionDef, places: set[tuple[int, int]], known: set[str]
) -> Iterator[cst.SimpleStatementLine]:
    for line in function.body.body:
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            continue
        assignment = line.body[0]
        if not isinstance(assignment, cst.Assign) or len(assignment.targets) != 1:
            continue
        target = assignment.targets[0].target
        if not isinstance(target, cst.Name):
            continue
        inside = [file.place(one) for one in walk(assignment.value) if isinstance(one, cst.Call)]
        loads = any((place.line, place.column) in places for place in inside)
        names = {one.value for one in _free_names(assignment.value)}
        if loads and names <= known and not names & _local_names(function) and _stays(target.value, function):
            yield line


def _free_names(node: cst.CSTNode) -> Iterator[cst.Name]:
    if isinstance(node, cst.Name):
        yield node
    elif isinstance(node, (cst.Attribute, cst.Arg)):
        yield from _free_names(node.value)
    else:
        for child in children_of(node):
            yield from _free_names(child)


def _local_names(function: cst.FunctionDef) -> set[str]:
    found = {parameter.name.value for parameter in walk(function.params) if isinstance(parameter, cst.Param)}
    return found | {name for node in walk(function.body) for name in _bound(node)}


def _bound(node: cst.CSTNode) -> set[str]:
    """The names that a statement binds."""
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return {node.name.value}
    if isinstance(node, (cst.Import, cst.ImportFrom)) and not isinstance(node.names, cst.ImportStar):
        return {(dotted(one.asname.name) if one.asname else dotted(one.name)).split(".")[0] for one in node.names}  # type: ignore[arg-type]
    if isinstance(node, cst.SimpleStatementLine):
        return {name for small in node.body for name in _bound(small)}
    if isinstance(node, cst.Assign):
        return {one.value for target in node.targets for one in walk(target.target) if isinstance(one, cst.Name)}
    if isinstance(node, (cst.AnnAssign, cst.AugAssign, cst.For)) and isinstance(node.target, cst.Name):
        return {node.target.value}
    return set()


def _stays(name: str, function: cst.FunctionDef) -> bool:
    """Whether a function neither assigns a name twice nor changes what it stands for."""
    assigned = 0
    for node in walk(function.body):
        if isinstance(node, cst.AssignTarget):
            root: cst.BaseExpression = node.target
            while isinstance(root, (cst.Subscript, cst.Attribute)):
                root = root.value
            assigned += isinstance(root, cst.Name) and root.value == name
        elif isinstance(node, cst.AugAssign) and dotted(node.target).split(".")[0] == name:
            return False
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            changes = node.func.attr.value in _CHANGING or any(
                argument.keyword is not None and argument.keyword.value == "inplace" for argument in node.args
            )
            if changes and dotted(node.func.value).split(".")[0] == name:
                return False
    return assigned == 1


def with_expressions_once(file: SourceFile, findings: list[Finding]) -> cst.Module:
    """Give the expressions that FO306 found a name, before the statement that needs them first."""
    lines = {(one.line, one.column) for one in findings if one.code == "FO306"}
    taken = {node.value for node in walk(file.tree) if isinstance(node, cst.Name)}
    changes: dict[int, cst.CSTNode] = {}
    for function in (node for node in walk(file.tree) if isinstance(node, cst.FunctionDef)):
        for second, text, _ in repeated_work(function, file):
            place = file.place(second)
            if (place.line, place.column) not in lines or not isinstance(second, cst.BaseExpression):
                continue
            body = list(changes.get(id(function.body), function.body).body)  # type: ignore[attr-defined]
            done = _named(file, function, second, text, body, taken)
            if done is not None:
                changes[id(function.body)] = function.body.with_changes(body=done)
                break
    return _visited(file.tree, _Replace(changes)) if changes else file.tree


def _named(
    file: SourceFile,
    function: cst.FunctionDef,
    second: cst.BaseExpression,
    text: str,
    body: list[cst.CSTNode],
    taken: set[str],
) -> list[cst.CSTNode] | None:
    """The body with the expression computed once; None where its parts are not all known before its first use."""
    same = "".join(text.split())
    uses = [
        [one for one in walk(statement) if type(one) is type(second) and "".join(file.code(one).split()) == same]
        for statement in body
        if not isinstance(statement, cst.FunctionDef)
    ]
    statements = [statement for statement in body if not isinstance(statement, cst.FunctionDef)]
    first = next((at for at, found in enumerate(uses) if found), None)
    if first is None:
        return None
    before = {name for statement in body[: body.index(statements[first])] for name in _bound(statement)}
    parameters = {one.name.value for one in walk(function.params) if isinstance(one, cst.Param)}
    needed = {one.value for one in _free_names(second)} & _local_names(function)
    if not needed <= before | parameters:
        return None
    name = _fresh(_title(second), taken)
    swap: dict[int, cst.CSTNode] = {id(one): cst.Name(name) for found in uses for one in found}
    result: list[cst.CSTNode] = []
    for statement in body:
        if statement is statements[first]:
            above = getattr(statement, "leading_lines", ())
            result.append(cst.parse_statement(f"{name} = {text}\n").with_changes(leading_lines=above))
            result.append(_visited(statement, _Replace(swap)).with_changes(leading_lines=()))
            continue
        result.append(_visited(statement, _Replace(swap)))
    return result


def _title(node: cst.BaseExpression) -> str:
    short = dotted(node.func).rsplit(".", 1)[-1] if isinstance(node, cst.Call) else ""
    return f"{short}_once" if re.fullmatch(r"\w+", short) else "computed_once"


def _fresh(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate


class _Replace(cst.CSTTransformer):
    def __init__(self, by_identity: dict[int, cst.CSTNode]):
        super().__init__()
        self._by_identity = by_identity

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        return self._by_identity.get(id(original_node), updated_node)


def _visited(node: cst.CSTNodeT, transformer: cst.CSTTransformer) -> cst.CSTNodeT:
    return node.visit(transformer)  # type: ignore[return-value]
