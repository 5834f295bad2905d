"""Classes and imports, as they are met on the walk through a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from flatout.pysource.operation_names import operations_name
from flatout.pysource.source_file import dotted

from .abstract_values import UNKNOWN, Class, External, Function, Static
from .names import Names

if TYPE_CHECKING:
    from .walk import Walk


def declare_class(walk_: Walk, node: cst.ClassDef, names: Names) -> None:
    """Bind a class, with its methods and the attributes that its body sets."""
    bases = tuple(walk_.value(base.value, names) for base in node.bases)
    inner = Names({}, names, is_function=False)
    found = Class(node, walk_.file, names, bases, inner.values)
    for statement in node.body.body:
        if isinstance(statement, cst.FunctionDef):
            decorators = tuple(dotted(d.decorator) for d in statement.decorators)
            method = Function(statement, walk_.file, names, None, statement.name.value, decorators)
            inner.values[statement.name.value] = method
        elif isinstance(statement, cst.ClassDef):
            declare_class(walk_, statement, Names(inner.values, names))
        elif isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                if isinstance(small, cst.Assign):
                    value = walk_.value(small.value, names)
                    for target in small.targets:
                        if isinstance(target.target, cst.Name):
                            inner.values[target.target.value] = value
    names[node.name.value] = found
    if names.parent is not None and not walk_.reporting:
        walk_.classes.append(found)


def declare_imports(walk_: Walk, node: cst.Import | cst.ImportFrom, names: Names) -> None:
    """Bind what an import brings: modules of the user are read, libraries are names."""
    if isinstance(node, cst.Import):
        for alias in node.names:
            module = dotted(alias.name)
            bound = dotted(alias.asname.name) if alias.asname else ""  # type: ignore[arg-type]
            file = walk_.project.imported(walk_.file, module, 0)
            if file is not None:
                names[bound or module] = Static("module", text=str(file.path))
            else:
                names[bound or module.split(".")[0]] = External(
                    operations_name(module if bound else module.split(".")[0])
                )
        return
    module = dotted(node.module) if node.module else ""
    if isinstance(node.names, cst.ImportStar):
        return
    file = walk_.project.imported(walk_.file, module, len(node.relative))
    for alias in node.names:
        name = dotted(alias.name)
        bound = dotted(alias.asname.name) if alias.asname else name  # type: ignore[arg-type]
        inner = walk_.project.imported(walk_.file, f"{module}.{name}" if module else name, len(node.relative))
        if file is not None and walk_.load(file).lookup(name)[0] is not None:
            names[bound] = walk_.load(file).get(name)
        elif inner is not None:
            names[bound] = Static("module", text=str(inner.path))
        elif file is not None:
            names[bound] = UNKNOWN
        else:
            names[bound] = External(operations_name(f"{module}.{name}"))
