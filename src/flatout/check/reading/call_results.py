"""The walk through calls: what functions of the user, of Python, of libraries give, and methods of values."""

from __future__ import annotations

import ast
import dataclasses

from flatout.check.values import abstract_values as av
from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Data, Sequence, Static, Tuple
from flatout.check.values.array_results import PYTHON_RESULTS, Given, array_result, host_result
from flatout.check.values.names import Names
from flatout.check.values.operation_results import elementwise, first_element, read_on_host, size_of_axis
from flatout.check.values.traces import ELEMENT, JOINED, MIXED, SAME, Iteration, Slot, used
from flatout.pysource.spellings import REDUCTIONS, is_host_library, operation, plain
from flatout.pysource.trees import defaults, parameters

from .events import Called, Stepped, Tested, Wrote
from .loop_domains import element
from .walking import Walking

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
_RANDOM = (
    "keras.random.", "tensorflow.random.", "jax.random.", "torch.rand", "torch.normal", "torch.bernoulli", "random.",
)  # fmt: skip
_OBJECTS = (
    "keras.losses.", "keras.metrics.", "keras.layers.", "keras.models.", "keras.Model", "keras.Sequential",
    "keras.applications.", "keras.saving.load_model", "torch.nn.",
)  # fmt: skip
# Functions that give a model.
_MODELS = ("load_model", "clone_model", "model_from_json", "from_pretrained")
# Where the function stands among the arguments, and where what it is called with.
_FOLDS = {"functools.reduce": (0, 1), "itertools.accumulate": (1, 0), "itertools.starmap": (0, 1)}
# `ops.take(y, c)` is `y[c]`, and `ops.equal(y, c)` is `y == c`.
_PICKING = frozenset({"take", "select", "get_item"})
_COMPARING = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "isclose"})
# By which an object of a library that nobody knows may be a table; what its other methods give, nobody knows either.
LOOKUPS_OF_OBJECTS = frozenset(["get", "loc", "at", "reindex", "lookup"])
_TABLES = ("dict", "frame", "array", "object", "list")


class CallResults(Walking):
    """Values of calls."""

    def value_Call(self, node: ast.Call, names: Names) -> AbstractValue:
        receiver: AbstractValue | None = None
        method = ""
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value, names)
            method = node.func.attr
            callee = self.attribute(base, method, node.func)
            receiver = base if not isinstance(base, av.External) else None
        else:
            callee = self.value(node.func, names)
        given = self._given(node, names)
        if isinstance(callee, av.Together) and callee.how == "entries":
            callee = self._each_entry(callee.items[0], given)
        name = callee.name if isinstance(callee, av.External) else ""
        short = operation(name) or (plain(method) if isinstance(receiver, Data) else "")
        held = (Data, av.Shape, Sequence, Static, Tuple, av.Variable)
        if isinstance(callee, av.External):
            result = self._external(callee.name, short, given)
        elif isinstance(receiver, held) and not isinstance(callee, av.Function):
            result = self._method(receiver, method, given)
        else:
            result = self.apply(callee, given.arguments, given.keywords)
            computes_loss = isinstance(receiver, av.Instance) and method in ("compute_loss", "compiled_loss")
            if isinstance(result, av.Unknown) and computes_loss:
                result = Data(frozenset({"pred"}), axes=(), differentiable=True)
        is_walked = isinstance(callee, (av.Function, av.Class, av.Together)) and not isinstance(result, av.Unknown)
        says_nothing = isinstance(result, (av.Size, av.Shape)) or result == Static("none") or name == "builtins.len"
        if not is_walked and not says_nothing:
            held_too = (receiver,) if receiver is not None else ()
            result = av.made_of(result, short or name.removeprefix("builtins.") or method, *held_too, *given.everything)
        self.touch(*given.everything, result, indexed=short in _PICKING, compared=short in _COMPARING)
        self.tell(Called(given.arguments, given.keywords, node, names, name, short, method, receiver))
        return result

    def _given(self, node: ast.Call, names: Names) -> Given:
        arguments: list[AbstractValue] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                value = self.value(argument.value, names)
                one = value.element if isinstance(value, Sequence) else value if isinstance(value, Data) else UNKNOWN
                arguments += value.items if isinstance(value, Tuple) else (one,)
            else:
                arguments.append(self.value(argument, names))
        keywords = {one.arg or "**": self.value(one.value, names) for one in node.keywords}
        if isinstance(keywords.get("**"), Static):
            keywords["**"] = UNKNOWN
        return Given(tuple(arguments), keywords, node, names)

    def apply(self, callee: AbstractValue, arguments: av.Arguments, keywords: av.Keywords) -> AbstractValue:
        """The value of calling something of the user."""
        if isinstance(callee, av.Function):
            return self.run(callee, arguments, keywords)
        if isinstance(callee, av.Class):
            return self.create(callee, arguments, keywords)
        if isinstance(callee, av.Instance):
            for name in ("call", "forward", "__call__"):
                if method := callee.of.method(name):
                    found = self.run(method.bound(callee), arguments, keywords)
                    return elementwise(arguments) if isinstance(found, av.Unknown) and av.data_in(arguments) else found
            # A model or layer of Keras: its output has the samples of its input.
            data = av.data_in(arguments)
            return elementwise(data).but(differentiable=True) if data else UNKNOWN
        if isinstance(callee, av.Together) and callee.how == "vmap":
            inner = [first_element(one) if isinstance(one, Data) else one for one in arguments]
            result = self.apply(callee.items[0], inner, keywords)
            return elementwise(arguments).but(axes=av.AXES) if av.data_in([result]) else result
        if isinstance(callee, av.Together) and callee.how == "partial":
            return self.apply(callee.items[0], [*callee.items[1:], *arguments], keywords)
        data = av.data_in(arguments)
        if isinstance(callee, av.Unknown) and data and getattr(self.root, "kind", "") == "step":
            # A network or a loss of the model's own, with outputs of whatever shape.
            return elementwise(data).but(
                origins=av.origins_of(data) | {"pred"}, axes=(), differentiable=True, rank=None, on_host=False
            )
        return UNKNOWN

    # -- libraries

    def _external(self, name: str, short: str, given: Given) -> AbstractValue:
        everything = given.everything
        if name.startswith("builtins.") or name in PYTHON_RESULTS:
            return self._builtin(name.removeprefix("builtins."), given)
        if name in HOST_CALLBACKS:
            return self._host_callback(name, given)
        if name in VARIABLES:
            return av.Variable()
        if name.startswith(_RANDOM):
            for loop in self.loops:
                loop.draws = True
            if av.data_in(everything):
                return elementwise(everything)
            return Static("number") if name.startswith("random.") else Data(axes=("constant",))
        if name.startswith("bisect.") and av.data_in(everything):
            return read_on_host(elementwise(everything)).but(axes=())
        if name in _FOLDS:
            function, over = (given.at(at, key) for at, key in zip(_FOLDS[name], ("func", "iterable"), strict=True))
            times = 1 if name.endswith("starmap") else 2
            return self._mapped(given, function or UNKNOWN, [over or UNKNOWN] * times, name.rpartition(".")[2])
        if name.startswith("numba.") and not av.data_in(everything):
            return av.External(name)  # A decorator with options, or what it made of a function.
        if is_host_library(name):
            return host_result(name, given)
        if name.startswith(_OBJECTS) and not short:
            return _keras_object(name, given)
        if name.endswith("unpack_x_y_sample_weight"):
            x = Data(frozenset({"x"}), mapping=True)
            return Tuple((x, Data(frozenset({"true"}), rank=0), Data(frozenset({"weight"}))))
        if short:
            return self._operation(name, short, given)
        return UNKNOWN if av.data_in(everything) else Static()

    def _each_entry(self, function: AbstractValue, given: Given) -> av.External:
        """Walk through the call of `np.vectorize(f)`: a function of NumPy's that calls f for every entry."""
        if isinstance(function, av.Function):
            entries = [read_on_host(one).but(axes=()) if isinstance(one, Data) else one for one in given.arguments]
            self.run(function, entries, {})
        return av.External("numpy.vectorize.entries")

    def _host_callback(self, name: str, given: Given) -> AbstractValue:
        inputs = [*given.arguments[1:], *given.keywords.values()]
        with self.having(in_callback=True):
            self.apply(given.at(0, "func") or UNKNOWN, [read_on_host(one) for one in av.data_in(inputs)], {})
        flows = name == "tensorflow.py_function" and "pred" in av.origins_of(inputs)
        return Data(av.origins_of(inputs), axes=("batch",), differentiable=flows)

    def _operation(self, name: str, short: str, given: Given) -> AbstractValue:
        """What an array operation gives, whatever library it is of."""
        first = given.first
        if short in _MAPS and isinstance(first, (av.Function, av.Together, av.External)):
            if short == "vmap":
                return av.Together((first,), "vmap")
            return self._each(first, given.at(1, "elems", "elements") or UNKNOWN)
        if short in _CONTROL_FLOW:
            return self._control_flow(name, short, given)
        return first if short in _WRAPPERS else array_result(name, short, given)

    def _each(self, function: AbstractValue, elements: AbstractValue) -> AbstractValue:
        data = av.data_in([elements])
        inner: list[AbstractValue] = [first_element(one) for one in data]
        takes_all = isinstance(function, av.Function) and len(function.node.args.args) == len(inner)
        packed = isinstance(elements, Tuple) and not takes_all
        result = self.apply(function, [Tuple(tuple(inner))] if packed else inner, {})
        return elementwise([*av.data_in([result]), *data]).but(axes=av.AXES[:1], rank=None)

    def _control_flow(self, name: str, short: str, given: Given) -> AbstractValue:
        data = av.data_in(given.everything)
        results: list[AbstractValue] = []
        for function in (one for one in given.everything if isinstance(one, av.Function)):
            optional = defaults(function.node)
            count = sum(parameter.arg not in optional for parameter in function.node.args.args)
            inputs: list[AbstractValue] = [UNKNOWN] * count
            if short == "scan" and count == 2 and data:
                inputs = [elementwise(data), first_element(data[-1])]
            results.append(self._stepped(name, short, function, inputs, given.node))
        if short == "cond" and av.data_in(results):
            return av.merge_all(results)
        return elementwise(data) if data and short == "cond" else UNKNOWN

    def _stepped(
        self, name: str, short: str, function: av.Function, inputs: list[AbstractValue], node: ast.Call
    ) -> AbstractValue:
        """What the function of a scan or counted loop gives; the rules hear if it only adds to what it carries."""
        places = {"scan": (0,), "fori_loop": (1,), "while_loop": range(len(inputs))}.get(short, ())
        iteration = Iteration()
        slots = {at: Slot(iteration, str(at)) for at in places if at < len(inputs)}
        traces = [{(iteration, slots.get(at, ELEMENT)): SAME if at in slots else MIXED} for at in range(len(inputs))]
        with self.having(iterations=[*self.iterations, iteration]):
            result = self.apply(function, list(map(av.traced, inputs, traces)), {})
        parts = result.items if isinstance(result, Tuple) and not name.startswith("tensorflow.scan") else (result,)
        iteration.written.clear()
        for slot, part in zip(slots.values(), parts, strict=False):
            iteration.write(slot, av.traces_of(part))
        if slots and len(parts) >= len(slots) and iteration.only_reduces():
            self.tell(Stepped(node))
        return result

    # -- builtins

    def _builtin(self, name: str, given: Given) -> AbstractValue:
        if name in ("map", "filter") and len(given.arguments) > 1:
            return self._mapped(given, given.arguments[0], given.arguments[1:])
        if name in ("max", "min", "sorted"):
            data = [one for one in given.arguments if isinstance(one, Data)]
            if not all(one.on_host for one in data):
                self.tell(Tested(given.node, data[0]))
            if isinstance(given.keywords.get("key"), av.Function) and given.arguments:
                self._mapped(given, given.keywords["key"], given.arguments[:1])
        return PYTHON_RESULTS[name](given) if name in PYTHON_RESULTS else UNKNOWN

    def _mapped(self, given: Given, function: AbstractValue, iterated: av.Arguments, how: str = "map") -> AbstractValue:
        """The value of calling a function for every element; `how` is "map", "starmap", "reduce" or "accumulate"."""
        together = av.Together(tuple(iterated), "zip") if len(iterated) > 1 else iterated[0]
        *_, over = (*(one.value for one in given.node.keywords), *given.node.args)
        over = over.value if isinstance(over, ast.Starred) else over
        with self.looping(given.node, "map", over, together) as loop, self.iteration(loop, given.names) as iteration:
            inputs = element(together, loop)
            spreads = how == "starmap" or len(iterated) > 1
            values = list(inputs.items) if isinstance(inputs, Tuple) and spreads else [inputs]
            values = [av.traced(one, {(iteration, ELEMENT): MIXED}) for one in values]
            if how in ("reduce", "accumulate") and isinstance(function, av.Function):
                state = Slot(loop, parameters(function.node)[0].arg)
                values[0] = av.traced(values[0], {(iteration, state): SAME})
                result = self.apply(function, values, {})
                iteration.write(state, av.traces_of(result))
            else:
                result = self.apply(function, values, {})
        return result if how == "reduce" else Sequence(result, loop.labels[0])

    # -- methods

    def _method(self, receiver: AbstractValue, method: str, given: Given) -> AbstractValue:
        """What `receiver.method(...)` gives; a list that it appends to is another one from then on."""
        held = given.node.func.value if isinstance(given.node.func, ast.Attribute) else None
        grows = method in ("append", "extend", "add", "insert") and bool(given.arguments)
        if grows and method in ("append", "extend") and isinstance(held, ast.Subscript):
            self.assign(held, given.arguments[0], given.names)
            return Static("none")
        if isinstance(receiver, Data):
            return self._data_method(receiver, method, given)
        if isinstance(receiver, av.Shape):
            whole = method in ("as_list", "tolist")
            return receiver if whole else av.Size(receiver.axes[0] if receiver.axes else av.STATIC)
        if isinstance(receiver, av.Variable):
            return Static("none") if method.startswith("assign") else Data(axes=())
        if grows:
            self._appended(held, receiver, method == "extend", given)
            return Static("none")
        if isinstance(receiver, Static):
            return _static_method(receiver, method, given)
        return receiver if method in ("copy", "tolist") else UNKNOWN

    def _data_method(self, data: Data, method: str, given: Given) -> AbstractValue:
        if data.mapping and method in ("get", "pop", "values", "items", "keys"):
            return data.but(mapping=False) if method in ("get", "pop") else Static("list")
        if method == "size":
            shape = av.Shape(data.axes)
            return size_of_axis(shape, av.whole_number(given.first, 0)) if given.arguments else shape
        short = plain(method)
        values = given.arguments[:1] if short in REDUCTIONS else given.arguments
        result = self._operation(method, short, dataclasses.replace(given, arguments=(data, *values)))
        return read_on_host(result) if isinstance(result, Data) and data.on_host else result

    def _appended(self, held: ast.expr | None, receiver: AbstractValue, extends: bool, given: Given) -> None:
        value = given.arguments[-1]
        more: tuple[AbstractValue, ...] = (value,)
        if extends and isinstance(value, Tuple):
            more = value.items or more
        elif extends and isinstance(value, (Sequence, Data)):
            more = (value.element if isinstance(value, Sequence) else first_element(value),)
        for (iteration, slot), kind in receiver.traces.items():
            if kind in (SAME, JOINED):
                iteration.write(slot, {**used(av.traces_of(value)), (iteration, slot): JOINED})
        label = self.loops[-1].labels[0] if self.loops else av.STATIC
        grown: AbstractValue = Sequence(av.merge_all(more), label)
        if isinstance(receiver, Sequence):
            grown = receiver.but(element=av.merge_all((receiver.element, *more)))
        elif isinstance(receiver, Tuple) and receiver.is_list:
            items = (*receiver.items, *more)
            grown = Sequence(av.merge_all(items), label) if self.loops else Tuple(items, True)
        elif not isinstance(receiver, Static) or (receiver.length != 0 and receiver.tag != "list"):
            return
        grown = av.made_of(grown, "append", receiver, av.traced(value, used(av.traces_of(value))))
        if isinstance(held, ast.Name) and given.names.module().get(held.id).identity is receiver.identity:
            self.tell(Wrote(given.node, held.id, "grown", value, receiver))
        elif isinstance(held, ast.Name):
            self.mutated(receiver, grown, given.names)
        elif isinstance(held, ast.Attribute):
            owner = self.value(held.value, given.names)
            if isinstance(owner, av.Instance):
                owner.attributes[held.attr] = grown


def _keras_object(name: str, given: Given) -> AbstractValue:
    last = name.rpartition(".")[2]
    if last in _MODELS:
        return av.External("keras.models.Model()")
    if last.endswith("()") or last[:1].islower():
        if not av.data_in(given.everything):
            return UNKNOWN if av.is_unclear(given.everything) else Static()
        if last == "Model()":
            return UNKNOWN  # It may have several outputs.
        data = elementwise(given.everything)
        flows = (name.startswith("keras.losses.") or data.differentiable) and "pred" in data.origins
        return data.but(axes=data.axes[:1], differentiable=flows, rank=None)
    return av.External(name + "()") if not av.data_in(given.arguments) else UNKNOWN


def _static_method(receiver: Static, method: str, given: Given) -> AbstractValue:
    if receiver.tag == "file":
        return Static("text")
    if method in ("items", "keys", "values") and receiver.tag == "dict":
        entries = Static("list", length=receiver.length)
        return av.Together((entries, entries), "zip") if method == "items" else entries
    if av.data_in(given.everything):
        is_table = receiver.tag in _TABLES and (receiver.tag != "object" or method in LOOKUPS_OF_OBJECTS)
        return read_on_host(elementwise(given.everything)) if is_table else UNKNOWN
    return receiver if receiver.tag in ("frame", "array", "rng") else Static()
