"""The walk through calls: what the functions of Python, NumPy, pandas, Keras and the backends give."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import libcst as cst

from flatout.pysource.carried import folded_name
from flatout.pysource.operation_names import is_host_library, operation, plain
from flatout.pysource.source_file import SourceFile

from . import operation_results as operations
from .abstract_values import (
    AXES,
    UNKNOWN,
    Class,
    Data,
    External,
    Function,
    Instance,
    Sequence,
    Shape,
    Static,
    Together,
    Tuple,
    Unknown,
    Value,
    Variable,
    data_in,
    merge_all,
    origins_of,
)
from .array_results import CASTS, array_result, host_result
from .builtin_calls import BUILTINS, ITERTOOLS
from .events import Called, Loop, Tested
from .method_results import Methods
from .names import Names
from .operation_results import elementwise

HOST_CALLBACKS = frozenset(
    [
        "tensorflow.py_function",
        "tensorflow.numpy_function",
        "tensorflow.py_func",
        "tensorflow.compat.v1.py_func",
        "jax.pure_callback",
        "jax.experimental.io_callback",
        "jax.debug.callback",
        "jax.host_callback.call",
        "jax.host_callback.id_tap",
    ]
)
SEQUENTIAL_MAPS = frozenset(["map_fn", "map", "scan_map", "foldl", "foldr"])
_RANDOM = ("keras.random.", "tensorflow.random.", "jax.random.", "torch.rand", "torch.normal", "torch.bernoulli")
VARIABLES = frozenset(
    [
        "keras.Variable",
        "keras.backend.variable",
        "keras.backend.Variable",
        "tensorflow.Variable",
        "torch.nn.Parameter",
        "keras.variables.Variable",
        "tensorflow.compat.v1.get_variable",
    ]
)

# `ops.take(y, c)` is `y[c]`, and `ops.equal(y, c)` is `y == c`.
_PICKING = frozenset({"take", "gather", "index_select", "select", "get_item"})
_COMPARING = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "eq", "ne", "isclose"})


class Calls(Methods):
    """Values of calls. The rest of the walk supplies what is declared here."""

    file: SourceFile
    loops: list[Loop]
    reporting: bool
    callback_depth: int
    made: list[Function]
    testing: bool

    if TYPE_CHECKING:

        def value(self, node: cst.BaseExpression, names: Names) -> Value: ...
        def attribute(self, base: Value, name: str, node: cst.BaseExpression) -> Value: ...
        def touch(self, *values: Value, indexed: bool = False, compared: bool = False) -> None: ...
        def tell(self, event: Any) -> None: ...
        def run(self, function: Function, arguments: list[Value], keywords: Mapping[str, Value]) -> Value: ...
        def create(self, of: Class, arguments: list[Value], keywords: Mapping[str, Value]) -> Instance: ...
        def method_of(self, of: Class, name: str) -> Any: ...
        def module_name(self, module: str, name: str) -> Value: ...
        def open_loop(self, node: Any, how: str, iter_: Any, iterated: Value, target: Any, names: Names) -> Loop: ...
        def close_loop(self, loop: Loop) -> None: ...
        def element_of(self, iterated: Value, loop: Loop) -> Value: ...

    def call(self, node: cst.Call, names: Names) -> Value:
        """The value of a call."""
        receiver: Value | None = None
        method = ""
        if isinstance(node.func, cst.Attribute):
            base = self.value(node.func.value, names)
            method = node.func.attr.value
            callee = self.attribute(base, method, node.func)
            receiver = base if not isinstance(base, External) else None
        else:
            callee = self.value(node.func, names)
        arguments: list[Value] = []
        keywords: dict[str, Value] = {}
        for argument in node.args:
            value = self.value(argument.value, names)
            if argument.keyword is not None:
                keywords[argument.keyword.value] = value
            elif argument.star == "*" and isinstance(value, Tuple):
                arguments += value.items
            elif not argument.star:
                arguments.append(value)
        if isinstance(callee, Together) and callee.how == "entries":
            callee = self._each_entry(callee.items[0], arguments)
        name = callee.name if isinstance(callee, External) else ""
        short = operation(name) or (plain(method) if isinstance(receiver, Data) else "")
        if isinstance(callee, External):
            result = self._external(callee.name, short, arguments, keywords, node, names)
        elif isinstance(receiver, (Data, Shape, Sequence, Static, Tuple, Variable)) and not isinstance(
            callee, Function
        ):
            result = self.method(receiver, method, arguments, keywords, node, names)
        else:
            result = self.apply(callee, arguments, keywords)
            if (
                isinstance(result, Unknown)
                and isinstance(receiver, Instance)
                and method in ("compute_loss", "compiled_loss")
            ):
                result = Data(frozenset({"pred"}), axes=(), differentiable=True)
        self.touch(*arguments, *keywords.values(), result, indexed=short in _PICKING, compared=short in _COMPARING)
        self.tell(Called(node, name, short, method, receiver, tuple(arguments), keywords, result))
        return result

    def apply(self, callee: Value, arguments: list[Value], keywords: Mapping[str, Value]) -> Value:
        """The value of calling something of the user."""
        if isinstance(callee, Function):
            return self.run(callee, arguments, keywords)
        if isinstance(callee, Class):
            return self.create(callee, arguments, keywords)
        if isinstance(callee, Instance):
            for name in ("call", "forward", "__call__"):
                if method := self.method_of(callee.of, name):
                    found = self.run(method.bound(callee), arguments, keywords)
                    return elementwise(arguments) if isinstance(found, Unknown) and data_in(arguments) else found
            data = data_in(arguments)
            # A model or layer of Keras: its output has the samples of its input.
            return dataclasses.replace(elementwise(list(data)), differentiable=True) if data else UNKNOWN
        if isinstance(callee, Together) and callee.how == "vmap":
            inner = [operations.first_element(one) if isinstance(one, Data) else one for one in arguments]
            result = self.apply(callee.items[0], inner, keywords)
            return dataclasses.replace(elementwise(arguments), axes=AXES) if data_in([result]) else result
        if isinstance(callee, Together) and callee.how == "partial":
            return self.apply(callee.items[0], [*callee.items[1:], *arguments], keywords)
        return UNKNOWN

    # -- libraries

    def _external(
        self, name: str, short: str, arguments: list[Value], keywords: Mapping[str, Value], node: cst.Call, names: Names
    ) -> Value:
        if name.startswith("builtins.") or name in ITERTOOLS:
            return self._builtin(name.removeprefix("builtins."), arguments, keywords, node, names)
        everything = [*arguments, *keywords.values()]
        if name in HOST_CALLBACKS:
            return self._host_callback(name, arguments, keywords)
        if name in VARIABLES:
            return Variable()
        if name in ("os.popen", "subprocess.run", "subprocess.check_output", "subprocess.Popen"):
            return Static("file")
        if name.startswith(_RANDOM) or name.split(".")[0] == "random":
            for loop in self.loops:
                loop.draws = True
            if data_in(everything):
                return elementwise(everything)
            return Data(axes=("constant",)) if not name.startswith("random.") else Static("number")
        if name.startswith("bisect.") and data_in(everything):
            return dataclasses.replace(elementwise(everything), axes=(), on_host=True, differentiable=False)
        if name in ("functools.partial", "jax.tree_util.Partial"):
            return Together(tuple(arguments), "partial")
        if name == "functools.reduce" and len(arguments) > 1:
            return self._mapped(node, arguments[0], [arguments[1], arguments[1]], names, "reduce")
        if name == "itertools.accumulate" and arguments:
            step = arguments[1] if len(arguments) > 1 else keywords.get("func", UNKNOWN)
            return self._mapped(node, step, [arguments[0], arguments[0]], names, "accumulate")
        if name == "itertools.starmap" and len(arguments) > 1:
            return self._mapped(node, arguments[0], arguments[1:2], names, "map", is_starred=True)
        if name == "numpy.vectorize" and arguments:
            return Together(tuple(arguments[:1]), "entries")
        if is_host_library(name):
            return host_result(name, everything, arguments, keywords)
        if (
            name.startswith(("keras.losses.", "keras.metrics.", "keras.layers.", "keras.models.", "torch.nn."))
            and not short
        ):
            return self._keras_object(name, arguments, everything)
        if name in ("copy.deepcopy", "copy.copy") and arguments:
            return arguments[0]
        if name.endswith("unpack_x_y_sample_weight"):
            return self.unpacked()
        if short:
            return self.operation(name, short, arguments, keywords, node, names)
        return UNKNOWN if data_in(everything) else Static()

    def _each_entry(self, function: Value, arguments: list[Value]) -> External:
        """Walk through the call of `np.vectorize(f)`: a function of NumPy's that calls f for every entry."""
        if isinstance(function, Function):
            entries = [
                dataclasses.replace(one, axes=(), on_host=True, differentiable=False) if isinstance(one, Data) else one
                for one in arguments
            ]
            self.run(function, list(entries), {})
        return External("numpy.vectorize.entries")

    @staticmethod
    def unpacked() -> Tuple:
        """`x, y, sample_weight` of a step's data."""
        x = Data(frozenset({"x"}), mapping=True)
        return Tuple((x, Data(frozenset({"true"}), rank=0), Data(frozenset({"weight"}))))

    def _keras_object(self, name: str, arguments: list[Value], everything: list[Value]) -> Value:
        last = name.rsplit(".", 1)[-1]
        if last.endswith("()") or last[:1].islower():
            if not data_in(everything):
                return Static()
            data = elementwise(everything)
            flows = name.startswith("keras.losses.") or data.differentiable
            return dataclasses.replace(
                data, axes=data.axes[:1], differentiable=flows and "pred" in data.origins, rank=None
            )
        return External(name + "()") if not data_in(arguments) else UNKNOWN

    def _host_callback(self, name: str, arguments: list[Value], keywords: Mapping[str, Value]) -> Value:
        inputs = [*arguments[1:], *keywords.values()]
        data = [dataclasses.replace(one, on_host=True, differentiable=False) for one in data_in(inputs)]
        self.callback_depth += 1
        try:
            function = arguments[0] if arguments else keywords.get("func", UNKNOWN)
            self.apply(function, list(data), {})
        finally:
            self.callback_depth -= 1
        flows = name == "tensorflow.py_function"
        return Data(origins_of(inputs), axes=("batch",), differentiable=flows and "pred" in origins_of(inputs))

    # -- array operations

    def operation(
        self, name: str, short: str, arguments: list[Value], keywords: Mapping[str, Value], node: cst.Call, names: Names
    ) -> Value:
        """What an array operation gives, whatever library it is of."""
        first = arguments[0] if arguments else next(iter(keywords.values()), None)
        second = arguments[1] if len(arguments) > 1 else None
        if short in ("vmap", "vectorized_map", *SEQUENTIAL_MAPS) and isinstance(first, (Function, Together, External)):
            if short == "vmap":
                return Together((first,), "vmap")
            elements = second if second is not None else keywords.get("elems", keywords.get("elements", UNKNOWN))
            return self._each(first, elements)
        if short in ("cond", "scan", "while_loop", "fori_loop", "switch", "associative_scan", "map_chunked"):
            return self._control_flow(short, arguments, keywords, node, names)
        if short in (
            "custom_gradient",
            "custom_jvp",
            "custom_vjp",
            "function",
            "jit",
            "compile",
            "checkpoint",
            "remat",
        ):
            return first if first is not None else UNKNOWN
        cast_to = self.file.code(node.args[-1].value) if short in CASTS and node.args and self.reporting else ""
        return array_result(name, short, arguments, keywords, cast_to)

    def _each(self, function: Value, elements: Value) -> Value:
        data = data_in([elements])
        inner: list[Value] = [operations.first_element(one) for one in data]
        given: list[Value] = [Tuple(tuple(inner))] if isinstance(elements, Tuple) else inner
        if isinstance(function, Function) and len(function.node.params.params) == len(inner):
            given = inner
        result = self.apply(function, given, {})
        found = data_in([result]) or data
        return dataclasses.replace(elementwise([*found, *data]), axes=AXES[:1], rank=None)

    def _control_flow(
        self, short: str, arguments: list[Value], keywords: Mapping[str, Value], node: cst.Call, names: Names
    ) -> Value:
        functions = [one for one in (*arguments, *keywords.values()) if isinstance(one, Function)]
        data = data_in([*arguments, *keywords.values()])
        results: list[Value] = []
        for function in functions:
            count = sum(parameter.default is None for parameter in function.node.params.params)
            given: list[Value] = [UNKNOWN] * count
            if short == "scan" and count == 2 and data:
                given = [elementwise(list(data)), operations.first_element(data[-1])]
            results.append(self.apply(function, given, {}))
        if short == "cond" and data_in(results):
            return merge_all(results)
        return elementwise(list(data)) if data and short == "cond" else UNKNOWN

    # -- builtins

    def _builtin(
        self, name: str, arguments: list[Value], keywords: Mapping[str, Value], node: cst.Call, names: Names
    ) -> Value:
        first = arguments[0] if arguments else None
        if name in ("map", "filter") and len(arguments) > 1:
            return self._mapped(node, arguments[0], arguments[1:], names, "map")
        if name in ("max", "min", "sorted") and any(isinstance(one, Data) and not one.on_host for one in arguments):
            self.tell(Tested(node, next(one for one in arguments if isinstance(one, Data))))
        if name in ("max", "min", "sorted") and isinstance(keywords.get("key"), Function) and first is not None:
            self._mapped(node, keywords["key"], [first], names, "map")
        if name == "super":
            return UNKNOWN
        if name == "setattr":
            return Static("none")
        handler = BUILTINS.get(name)
        if handler:
            return handler(arguments, keywords)
        if name in ("next", "iter") and first is not None:
            return first if name == "iter" else Static("object")
        return UNKNOWN

    def _mapped(
        self,
        node: cst.Call,
        function: Value,
        iterated: list[Value],
        names: Names,
        how: str,
        is_starred: bool = False,
    ) -> Value:
        together = Together(tuple(iterated), "zip") if len(iterated) > 1 else iterated[0]
        over = next((one.value for one in reversed(node.args) if one.keyword is None), node.args[-1].value)
        loop = self.open_loop(node, "map", over, together, None, names)
        if how in ("reduce", "accumulate") and isinstance(function, Function):
            loop.carries = tuple(filter(None, (folded_name(function.node),)))
        try:
            element = self.element_of(together, loop)
            is_spread = isinstance(element, Tuple) and (is_starred or len(iterated) > 1)
            given = list(element.items) if isinstance(element, Tuple) and is_spread else [element]
            result = self.apply(function, given, {})
        finally:
            self.close_loop(loop)
        return result if how == "reduce" else Sequence(result, loop.labels[0])
