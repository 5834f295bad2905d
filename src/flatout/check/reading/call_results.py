"""The walk through calls: what the functions of Python, NumPy, pandas, Keras and the backends give."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flatout.check.values.abstract_values import (
    AXES,
    UNKNOWN,
    AbstractValue,
    Class,
    Data,
    External,
    Function,
    Instance,
    Shape,
    Size,
    Static,
    Together,
    Tuple,
    Unknown,
    Variable,
    data_in,
    made_of,
    merge_all,
    origins_of,
    traced,
    traces_of,
)
from flatout.check.values.abstract_values import Sequence as ValueSequence
from flatout.check.values.array_results import array_result, host_result
from flatout.check.values.builtin_calls import BUILTINS, ITERTOOLS
from flatout.check.values.given import Given
from flatout.check.values.operation_results import elementwise, first_element, read_on_host
from flatout.check.values.traces import ELEMENT, MIXED, SAME, Iteration, Slot
from flatout.pysource.spellings import is_host_library, operation, plain
from flatout.pysource.trees import defaults, parameters

from .events import Called, Stepped, Tested
from .loop_domains import element
from .method_results import MethodResults

HOST_CALLBACKS = frozenset({
    "tensorflow.py_function", "tensorflow.numpy_function", "tensorflow.py_func", "tensorflow.compat.v1.py_func",
    "jax.pure_callback", "jax.experimental.io_callback", "jax.debug.callback", "jax.host_callback.call",
    "jax.host_callback.id_tap",
})  # fmt: skip
VARIABLES = frozenset({
    "keras.Variable", "keras.backend.variable", "keras.backend.Variable", "tensorflow.Variable", "torch.nn.Parameter",
    "keras.variables.Variable", "tensorflow.compat.v1.get_variable",
})  # fmt: skip
_MAPS = frozenset(["vmap", "vectorized_map", "map_fn", "map", "scan_map", "foldl", "foldr"])
_CONTROL_FLOW = frozenset(["cond", "scan", "while_loop", "fori_loop", "switch", "associative_scan", "map_chunked"])
_WRAPPERS = frozenset({
    "custom_gradient", "custom_jvp", "custom_vjp", "function", "jit", "compile", "checkpoint", "remat",
})  # fmt: skip
_RANDOM = ("keras.random.", "tensorflow.random.", "jax.random.", "torch.rand", "torch.normal", "torch.bernoulli")
_OBJECTS = ("keras.losses.", "keras.metrics.", "keras.layers.", "keras.models.", "torch.nn.")
_PROCESSES = ("os.popen", "subprocess.run", "subprocess.check_output", "subprocess.Popen")
# `ops.take(y, c)` is `y[c]`, and `ops.equal(y, c)` is `y == c`.
_PICKING = frozenset({"take", "select", "get_item"})
_COMPARING = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "isclose"})


class CallResults(MethodResults):
    """Values of calls."""

    def call(self, node: ast.Call, names: Any) -> AbstractValue:
        """The value of a call."""
        receiver: AbstractValue | None = None
        method = ""
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value, names)
            method = node.func.attr
            callee = self.attribute(base, method, node.func)
            receiver = base if not isinstance(base, External) else None
        else:
            callee = self.value(node.func, names)
        given = self._given(node, names)
        if isinstance(callee, Together) and callee.how == "entries":
            callee = self._each_entry(callee.items[0], given)
        name = callee.name if isinstance(callee, External) else ""
        short = operation(name) or (plain(method) if isinstance(receiver, Data) else "")
        held = (Data, Shape, ValueSequence, Static, Tuple, Variable)
        if isinstance(callee, External):
            result = self._external(callee.name, short, given)
        elif isinstance(receiver, held) and not isinstance(callee, Function):
            result = self.method(receiver, method, given)
        else:
            result = self.apply(callee, given.values, given.keywords)
            computes_loss = isinstance(receiver, Instance) and method in ("compute_loss", "compiled_loss")
            if isinstance(result, Unknown) and computes_loss:
                result = Data(frozenset({"pred"}), axes=(), differentiable=True)
        is_walked = isinstance(callee, (Function, Class, Together)) and not isinstance(result, Unknown)
        says_nothing = isinstance(result, (Size, Shape)) or result == Static("none") or name == "builtins.len"
        if not is_walked and not says_nothing:
            held_too = (receiver,) if receiver is not None else ()
            result = made_of(result, short or name.removeprefix("builtins.") or method, *held_too, *given.everything)
        self.touch(*given.everything, result, indexed=short in _PICKING, compared=short in _COMPARING)
        self.tell(Called(node, name, short, method, receiver, given.values, given.keywords))
        return result

    def _given(self, node: ast.Call, names: Any) -> Given:
        arguments: list[AbstractValue] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                value = self.value(argument.value, names)
                arguments += value.items if isinstance(value, Tuple) else ()
            else:
                arguments.append(self.value(argument, names))
        keywords = {one.arg: self.value(one.value, names) for one in node.keywords}
        return Given(tuple(arguments), {key: value for key, value in keywords.items() if key is not None}, node, names)

    def apply(
        self, callee: AbstractValue, arguments: Sequence[AbstractValue], keywords: Mapping[str, AbstractValue]
    ) -> AbstractValue:
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
            return dataclasses.replace(elementwise(data), differentiable=True) if data else UNKNOWN
        if isinstance(callee, Together) and callee.how == "vmap":
            inner = [first_element(one) if isinstance(one, Data) else one for one in arguments]
            result = self.apply(callee.items[0], inner, keywords)
            return dataclasses.replace(elementwise(arguments), axes=AXES) if data_in([result]) else result
        if isinstance(callee, Together) and callee.how == "partial":
            return self.apply(callee.items[0], [*callee.items[1:], *arguments], keywords)
        return UNKNOWN

    # -- libraries

    def _external(self, name: str, short: str, given: Given) -> AbstractValue:
        if name.startswith("builtins.") or name in ITERTOOLS:
            return self._builtin(name.removeprefix("builtins."), given)
        if name in HOST_CALLBACKS:
            return self._host_callback(name, given)
        if name in VARIABLES:
            return Variable()
        everything = given.everything
        if name.startswith(_RANDOM) or name.split(".")[0] == "random":
            for loop in self.loops:
                loop.draws = True
            if data_in(everything):
                return elementwise(everything)
            return Data(axes=("constant",)) if not name.startswith("random.") else Static("number")
        if name.startswith("bisect.") and data_in(everything):
            return dataclasses.replace(read_on_host(elementwise(everything)), axes=())
        if name in _BY_NAME and (found := _BY_NAME[name](self, given)) is not None:
            return found
        if is_host_library(name):
            return host_result(name, given)
        if name.startswith(_OBJECTS) and not short:
            return _keras_object(name, given)
        if name.endswith("unpack_x_y_sample_weight"):
            x = Data(frozenset({"x"}), mapping=True)
            return Tuple((x, Data(frozenset({"true"}), rank=0), Data(frozenset({"weight"}))))
        if short:
            return self.operation(name, short, given)
        return UNKNOWN if data_in(everything) else Static()

    def _each_entry(self, function: AbstractValue, given: Given) -> External:
        """Walk through the call of `np.vectorize(f)`: a function of NumPy's that calls f for every entry."""
        if isinstance(function, Function):
            entries = [
                dataclasses.replace(read_on_host(one), axes=()) if isinstance(one, Data) else one
                for one in given.values
            ]
            self.run(function, entries, {})
        return External("numpy.vectorize.entries")

    def _host_callback(self, name: str, given: Given) -> AbstractValue:
        inputs = [*given.values[1:], *given.keywords.values()]
        self.callback_depth += 1
        try:
            function = given.values[0] if given.values else given.keywords.get("func", UNKNOWN)
            self.apply(function, [read_on_host(one) for one in data_in(inputs)], {})
        finally:
            self.callback_depth -= 1
        flows = name == "tensorflow.py_function" and "pred" in origins_of(inputs)
        return Data(origins_of(inputs), axes=("batch",), differentiable=flows)

    # -- array operations

    def operation(self, name: str, short: str, given: Given) -> AbstractValue:
        """What an array operation gives, whatever library it is of."""
        first = given.first
        if short in _MAPS and isinstance(first, (Function, Together, External)):
            if short == "vmap":
                return Together((first,), "vmap")
            elements = given.values[1] if len(given.values) > 1 else given.at(1, "elems", "elements")
            return self._each(first, elements or UNKNOWN)
        if short in _CONTROL_FLOW:
            return self._control_flow(name, short, given)
        if short in _WRAPPERS:
            return first if first is not None else UNKNOWN
        return array_result(name, short, given)

    def _each(self, function: AbstractValue, elements: AbstractValue) -> AbstractValue:
        data = data_in([elements])
        inner: list[AbstractValue] = [first_element(one) for one in data]
        takes_all = isinstance(function, Function) and len(function.node.args.args) == len(inner)
        packed = isinstance(elements, Tuple) and not takes_all
        result = self.apply(function, [Tuple(tuple(inner))] if packed else inner, {})
        found = data_in([result]) or data
        return dataclasses.replace(elementwise([*found, *data]), axes=AXES[:1], rank=None)

    def _stepped(
        self, name: str, short: str, function: Function, inputs: list[AbstractValue], node: ast.Call
    ) -> AbstractValue:
        """What the function of a scan or counted loop gives; the rules hear if it only adds to what it carries."""
        places = {"scan": (0,), "fori_loop": (1,), "while_loop": range(len(inputs))}.get(short, ())
        iteration = Iteration()
        slots = {at: Slot(iteration, str(at)) for at in places if at < len(inputs)}
        traces = [{(iteration, slots.get(at, ELEMENT)): SAME if at in slots else MIXED} for at in range(len(inputs))]
        self.iterations.append(iteration)
        try:
            result = self.apply(function, list(map(traced, inputs, traces)), {})
        finally:
            self.iterations.remove(iteration)
        parts = result.items if isinstance(result, Tuple) and not name.startswith("tensorflow.scan") else (result,)
        iteration.written.clear()
        for slot, part in zip(slots.values(), parts, strict=False):
            iteration.write(slot, traces_of(part))
        if slots and len(parts) >= len(slots) and iteration.only_reduces():
            self.tell(Stepped(node))
        return result

    def _control_flow(self, name: str, short: str, given: Given) -> AbstractValue:
        data = data_in(given.everything)
        results: list[AbstractValue] = []
        for function in (one for one in given.everything if isinstance(one, Function)):
            optional = defaults(function.node)
            count = sum(parameter.arg not in optional for parameter in function.node.args.args)
            inputs: list[AbstractValue] = [UNKNOWN] * count
            if short == "scan" and count == 2 and data:
                inputs = [elementwise(data), first_element(data[-1])]
            results.append(self._stepped(name, short, function, inputs, given.node))
        if short == "cond" and data_in(results):
            return merge_all(results)
        return elementwise(data) if data and short == "cond" else UNKNOWN

    # -- builtins

    def _builtin(self, name: str, given: Given) -> AbstractValue:
        if name in ("map", "filter") and len(given.values) > 1:
            return self.mapped(given, given.values[0], given.values[1:])
        if name in ("max", "min", "sorted"):
            data = [one for one in given.values if isinstance(one, Data)]
            if not all(one.on_host for one in data):
                self.tell(Tested(given.node, data[0]))
            if isinstance(given.keywords.get("key"), Function) and given.values:
                self.mapped(given, given.keywords["key"], given.values[:1])
        handler = BUILTINS.get(name)
        return handler(given) if handler else UNKNOWN

    def mapped(
        self, given: Given, function: AbstractValue, iterated: Sequence[AbstractValue], how: str = "map"
    ) -> AbstractValue:
        """The value of calling a function for every element; `how` is "map", "starmap", "reduce" or "accumulate"."""
        together = Together(tuple(iterated), "zip") if len(iterated) > 1 else iterated[0]
        *_, over = (*(one.value for one in given.node.keywords), *given.node.args)
        over = over.value if isinstance(over, ast.Starred) else over
        with self.looping(given.node, "map", over, together) as loop, self.iteration(loop, given.names) as iteration:
            inputs = traced(element(together, loop), {(iteration, ELEMENT): MIXED})
            is_spread = how == "starmap" or len(iterated) > 1
            values = inputs.items if isinstance(inputs, Tuple) and is_spread else (inputs,)
            if how in ("reduce", "accumulate") and isinstance(function, Function):
                state = Slot(loop, parameters(function.node)[0].arg)
                values = (traced(values[0], {(iteration, state): SAME}), *values[1:])
                result = self.apply(function, values, {})
                iteration.write(state, traces_of(result))
            else:
                result = self.apply(function, values, {})
        return result if how == "reduce" else ValueSequence(result, loop.labels[0])


def _keras_object(name: str, given: Given) -> AbstractValue:
    last = name.rpartition(".")[2]
    if last.endswith("()") or last[:1].islower():
        if not data_in(given.everything):
            return Static()
        data = elementwise(given.everything)
        flows = (name.startswith("keras.losses.") or data.differentiable) and "pred" in data.origins
        return dataclasses.replace(data, axes=data.axes[:1], differentiable=flows, rank=None)
    return External(name + "()") if not data_in(given.values) else UNKNOWN


def _reduced(calls: CallResults, given: Given) -> AbstractValue | None:
    if len(given.values) < 2:
        return None
    return calls.mapped(given, given.values[0], [given.values[1]] * 2, "reduce")


def _accumulated(calls: CallResults, given: Given) -> AbstractValue | None:
    if not given.values:
        return None
    step = given.values[1] if len(given.values) > 1 else given.keywords.get("func", UNKNOWN)
    return calls.mapped(given, step, [given.values[0]] * 2, "accumulate")


def _starmapped(calls: CallResults, given: Given) -> AbstractValue | None:
    return calls.mapped(given, given.values[0], given.values[1:2], "starmap") if len(given.values) > 1 else None


def _copied(calls: CallResults, given: Given) -> AbstractValue | None:
    return given.values[0] if given.values else None


_BY_NAME: dict[str, Callable[[CallResults, Given], AbstractValue | None]] = {
    **dict.fromkeys(_PROCESSES, lambda calls, given: Static("file")),
    **dict.fromkeys(
        ("functools.partial", "jax.tree_util.Partial"), lambda calls, given: Together(given.values, "partial")
    ),
    "functools.reduce": _reduced,
    "itertools.accumulate": _accumulated,
    "itertools.starmap": _starmapped,
    "numpy.vectorize": lambda calls, given: Together(given.values[:1], "entries") if given.values else None,
    **dict.fromkeys(("copy.deepcopy", "copy.copy"), _copied),
}
