"""Classes and imports, as they are met on the walk through a module."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from flatout.check.values.abstract_values import UNKNOWN, Class, External, Function, Static
from flatout.check.values.names import Names
from flatout.pysource.spellings import operations_name
from flatout.pysource.trees import dotted

if TYPE_CHECKING:
    from .walking import Walking


def declare_class(walker: Walking, node: ast.ClassDef, names: Names) -> None:
    """Bind a class, with its methods and the attributes that its body sets."""
    bases = tuple(walker.value(base, names) for base in node.bases)
    inner = Names({}, names, is_function=False)
    found = Class(node, walker.file, names, bases, inner.values)
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            decorators = tuple(map(dotted, statement.decorator_list))
            inner.values[statement.name] = Function(statement, walker.file, names, None, statement.name, decorators)
        elif isinstance(statement, ast.ClassDef):
            declare_class(walker, statement, Names(inner.values, names))
        elif isinstance(statement, ast.Assign):
            value = walker.value(statement.value, names)
            inner.values |= {target.id: value for target in statement.targets if isinstance(target, ast.Name)}
    names[node.name] = found
    if names.parent is not None and not walker.reporting:
        walker.classes.append(found)


def declare_modules(walker: Walking, node: ast.Import, names: Names) -> None:
    """Bind what `import a.b as c` brings."""
    for alias in node.names:
        if file := walker.project.imported(walker.file, alias.name, 0):
            names[alias.asname or alias.name] = Static("module", text=str(file.path))
        else:
            top = alias.name.split(".")[0]
            names[alias.asname or top] = External(operations_name(alias.name if alias.asname else top))


def declare_imports(walker: Walking, node: ast.ImportFrom, names: Names) -> None:
    """Bind what `from a import b` brings: modules of the user are read, libraries are names."""
    module = node.module or ""
    file = walker.project.imported(walker.file, module, node.level)
    for alias in node.names:
        name, bound = alias.name, alias.asname or alias.name
        if name == "*":
            return
        inner = walker.project.imported(walker.file, f"{module}.{name}" if module else name, node.level)
        if file is not None and walker.load(file).lookup(name)[0] is not None:
            names[bound] = walker.load(file).get(name)
        elif inner is not None:
            names[bound] = Static("module", text=str(inner.path))
        elif file is not None:
            names[bound] = UNKNOWN
        else:
            names[bound] = External(operations_name(f"{module}.{name}"))
