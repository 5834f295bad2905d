"""Lists that hold elements before a loop fills them: these are kept apart, and joined where the list is summed up."""

from __future__ import annotations

import ast

_SUMS = ("sum", "reduce_sum", "add_n", "fsum")
_MEANS = ("mean", "reduce_mean")
_EXTREMES = {"max": "max", "reduce_max": "max", "amax": "max", "min": "min", "reduce_min": "min", "amin": "min"}
_STACKING = ("stack", "convert_to_tensor")


def apart(tree: ast.FunctionDef) -> ast.FunctionDef:
    """A function in which the lists that loops fill are empty before, where they are only summed up and counted."""
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for made in [node for node in ast.walk(tree) if _begins(node)]:
        assert isinstance(made, ast.Assign)
        joining = _Joining(tree, made, taken)
        if joining.is_whole:
            tree = joining.visit(tree)
    return ast.fix_missing_locations(tree)


def _begins(node: ast.AST) -> bool:
    """Whether a statement is `name = [a, b]`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return False
    value = node.value
    is_list = isinstance(value, ast.List) and bool(value.elts)
    return is_list and not any(isinstance(one, ast.Starred) for one in value.elts)  # type: ignore[attr-defined]


class _Joining(ast.NodeTransformer):
    """Writes what a list is used for as a use of its first elements and one of those that were appended."""

    def __init__(self, tree: ast.FunctionDef, made: ast.Assign, taken: set[str]):
        assert isinstance(made.targets[0], ast.Name)
        assert isinstance(made.value, ast.List)
        self._made = made
        self._name = made.targets[0].id
        self._firsts = [f"{self._name}_{place}_before" for place in range(len(made.value.elts))]
        self._uses: dict[int, ast.expr] = {}
        mentions = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == self._name]
        known = {id(made.targets[0])}
        loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
        filled = [call.func.value for loop in loops for call in ast.walk(loop) if self._fills(call)]  # type: ignore[attr-defined]
        known |= {id(name) for name in filled}
        for node in ast.walk(tree):
            use = self._use(node)
            if use is not None:
                known.add(id(use[1]))
                self._uses[id(node)] = use[0]
        inner = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda) and node is not tree]
        is_inner = any(self._is_it(part) for node in inner for part in ast.walk(node))
        is_free = not taken & set(self._firsts)
        self.is_whole = bool(filled) and is_free and not is_inner and all(id(node) in known for node in mentions)

    def _fills(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        return node.func.attr in ("append", "extend") and self._is_it(node.func.value)

    def _is_it(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self._name

    def _use(self, node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
        """What stands for a use of the list, and the name in it; None: the node is none."""
        if not isinstance(node, ast.Call) or node.keywords:
            return None
        function = ast.unparse(node.func)
        how = function.rpartition(".")[2]
        if isinstance(node.func, ast.Attribute) and not node.args:  # `torch.stack(terms).mean()`
            listed, library = node.func.value, None
        elif len(node.args) == 1:
            listed, library = node.args[0], node.func
        else:
            return None
        name = self._listed(listed)
        if name is None:
            return None
        all_of = ast.unparse(listed)
        firsts = " + ".join(self._firsts)
        if function == "len":
            return _expression(f"{len(self._firsts)} + len({self._name})"), name
        if how in _SUMS:
            return _expression(f"{firsts} + sum({self._name})"), name
        if how in _MEANS:
            return _expression(f"({firsts} + sum({self._name})) / ({len(self._firsts)} + len({self._name}))"), name
        if how in _EXTREMES:
            rest = f"{function}({all_of})" if library is not None else f"{all_of}.{how}()"
            return _expression(f"{_EXTREMES[how]}({', '.join(self._firsts)}, {rest})"), name
        return None

    def _listed(self, node: ast.expr) -> ast.expr | None:
        """The list's name in `terms` or `ops.stack(terms)`."""
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            is_stack = ast.unparse(node.func).rpartition(".")[2] in _STACKING
            node = node.args[0] if is_stack else node
        return node if self._is_it(node) else None

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        if node is not self._made:
            self.generic_visit(node)
            return node
        assert isinstance(node.value, ast.List)
        firsts = [
            ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)
            for name, value in zip(self._firsts, node.value.elts, strict=True)
        ]
        return [*firsts, ast.copy_location(ast.Assign(node.targets, ast.List([], ast.Load())), node)]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        use = self._uses.get(id(node))
        if use is not None:
            return ast.copy_location(use, node)
        self.generic_visit(node)
        return node


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
