"""Statements in a simpler spelling: `match`, `try` around a lookup, `while True` and a test, `yield`."""

from __future__ import annotations

import ast


def simplified(tree: ast.FunctionDef) -> ast.FunctionDef:
    """A function without those statements, where they have a simpler form; others stay as they are."""
    for node in ast.walk(tree):
        for side in ("body", "orelse"):
            if isinstance(getattr(node, side, None), list):
                setattr(node, side, _with_defaults(getattr(node, side)))
    return ast.fix_missing_locations(_Simplifying().visit(tree))  # type: ignore[no-any-return]


def _with_defaults(body: list[ast.stmt]) -> list[ast.stmt]:
    """`w = table.get(key)` and `if w is None: w = 1.0` is `w = table.get(key, 1.0)`."""
    made: list[ast.stmt] = []
    for one in body:
        last = made[-1] if made else None
        call = last.value if isinstance(last, ast.Assign) else None
        is_get = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "get"
        if is_get and isinstance(one, ast.If) and len(one.body) == 1 and not one.orelse:
            assert isinstance(last, ast.Assign)
            assert isinstance(call, ast.Call)
            name, then = ast.unparse(last.targets[0]), one.body[0]
            is_same = isinstance(then, ast.Assign) and ast.unparse(then.targets[0]) == name
            if is_same and ast.unparse(one.test) == f"{name} is None" and len(call.args) == 1 and not call.keywords:
                assert isinstance(then, ast.Assign)
                if isinstance(then.value, ast.Constant):
                    call.args.append(then.value)
                    continue
        made.append(one)
    return made


_YIELDED = "yielded_here"


class _Simplifying(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """`yield x` is `yielded.append(x)`, and the function gives the list."""
        self.generic_visit(node)
        yields = [part for part in ast.walk(node) if isinstance(part, (ast.Yield, ast.YieldFrom))]
        inside = [
            part for part in ast.walk(node) if isinstance(part, (ast.FunctionDef, ast.Lambda)) and part is not node
        ]
        returns = any(isinstance(part, ast.Return) for part in ast.walk(node))
        if not yields or inside or returns:
            return node
        collecting = _Collecting()
        body = [collecting.visit(statement) for statement in node.body]
        if collecting.found != len(yields):
            return node  # The value of a yield is used.
        first, last = ast.parse(f"{_YIELDED} = []\nreturn {_YIELDED}").body
        node.body = [ast.copy_location(first, node.body[0]), *body, ast.copy_location(last, node.body[-1])]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """`array = array.write(array.size(), x)` of a TensorArray is `array = array + [x]`."""
        self.generic_visit(node)
        call, target = node.value, node.targets[0]
        if not isinstance(call, ast.Call) or not isinstance(target, ast.Name) or len(call.args) != 2 or call.keywords:
            return node
        if ast.unparse(call.func) != f"{target.id}.write" or ast.unparse(call.args[0]) != f"{target.id}.size()":
            return node
        longer = ast.BinOp(ast.Name(target.id, ast.Load()), ast.Add(), ast.List([call.args[1]], ast.Load()))
        return ast.copy_location(ast.Assign([target], longer), node)

    def visit_While(self, node: ast.While) -> ast.stmt:
        """`while True: if i >= n: break; ...` is `while i < n: ...`."""
        self.generic_visit(node)
        is_endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        first = node.body[0]
        if not is_endless or not isinstance(first, ast.If) or first.orelse or len(node.body) < 2:
            return node
        if len(first.body) != 1 or not isinstance(first.body[0], ast.Break):
            return node
        test = _opposite(first.test)
        return node if test is None else ast.copy_location(ast.While(test, node.body[1:], node.orelse), node)

    def visit_Try(self, node: ast.Try) -> ast.stmt:
        """`try: w = table[key]` with `except KeyError: w = 1.0` is `w = table.get(key, 1.0)`."""
        self.generic_visit(node)
        if node.orelse or node.finalbody or len(node.handlers) != 1 or len(node.body) != 1:
            return node
        (handler,) = node.handlers
        if handler.type is None or ast.unparse(handler.type) not in ("KeyError", "LookupError", "(KeyError,)"):
            return node
        found, missing = node.body[0], handler.body[0]
        if len(handler.body) != 1 or not isinstance(found, ast.Assign) or not isinstance(missing, ast.Assign):
            return node
        value, default = found.value, missing.value
        is_same = [ast.unparse(one) for one in found.targets] == [ast.unparse(one) for one in missing.targets]
        if not is_same or not isinstance(default, ast.Constant) or not isinstance(value, ast.Subscript):
            return node
        if not isinstance(value.value, (ast.Name, ast.Attribute)) or isinstance(value.slice, ast.Slice):
            return node
        # `.get` of a dict or Series; the indexers of pandas, `.loc`, have none.
        if isinstance(value.value, ast.Attribute) and value.value.attr in ("loc", "iloc", "at", "iat"):
            return node
        call = ast.Call(ast.Attribute(value.value, "get", ast.Load()), [value.slice, default], [])
        return ast.copy_location(ast.Assign(found.targets, call), node)

    def visit_Match(self, node: ast.Match) -> ast.stmt:
        """`match` on numbers is a chain of `if`."""
        self.generic_visit(node)
        made: list[ast.stmt] = []
        for case in reversed(node.cases):
            test = _test_of(case.pattern, node.subject)
            if test is None:
                return node
            if case.guard is not None:
                test = ast.BoolOp(ast.And(), [test, case.guard])
            if isinstance(test, ast.Constant):  # `case _:` matches all.
                made = list(case.body)
            else:
                made = [ast.copy_location(ast.If(test, case.body, made), case.body[0])]
        return made[0] if len(made) == 1 else ast.copy_location(ast.If(ast.Constant(True), made, []), node)


_OPPOSITES: dict[type, type] = {ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Lt: ast.GtE, ast.Eq: ast.NotEq}


def _opposite(test: ast.expr) -> ast.expr | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITES:
        return ast.copy_location(ast.Compare(test.left, [_OPPOSITES[type(test.ops[0])]()], test.comparators), test)
    return None


def _test_of(pattern: ast.pattern, subject: ast.expr) -> ast.expr | None:
    """Whether a pattern of constants matches; None: it is of another kind."""
    if isinstance(pattern, ast.MatchValue):
        return ast.copy_location(ast.Compare(subject, [ast.Eq()], [pattern.value]), subject)
    if isinstance(pattern, ast.MatchOr):
        tests = [_test_of(one, subject) for one in pattern.patterns]
        known = [test for test in tests if test is not None]
        return ast.copy_location(ast.BoolOp(ast.Or(), list(known)), subject) if len(known) == len(tests) else None
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None:
        return ast.Constant(True)
    return None


class _Collecting(ast.NodeTransformer):
    """Statements that yield, as statements that append to a list."""

    def __init__(self) -> None:
        self.found = 0

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if not isinstance(node.value, (ast.Yield, ast.YieldFrom)):
            return node
        self.found += 1
        how = "append" if isinstance(node.value, ast.Yield) else "extend"
        function = ast.Attribute(ast.Name(_YIELDED, ast.Load()), how, ast.Load())
        given = node.value.value or ast.Constant(None)
        return ast.copy_location(ast.Expr(ast.Call(function, [given], [])), node)
