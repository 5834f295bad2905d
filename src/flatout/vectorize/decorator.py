"""`flatout.vectorize`: a loss with loops becomes array code, once that is verified; else it stays as it is."""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flatout.base.errors import CannotVectorize

_log = logging.getLogger("flatout")


@dataclass(frozen=True)
class Decision:
    """What was decided for arrays of certain ranks."""

    function: Callable[..., Any] | None  # The rewritten function, or None: the original is used.
    reason: Any = None  # Why the original is used, as a `NoRewrite`; None if it is not.
    rewrite: Any = None  # The `Rewrite`, verified or not; None if there is none.
    verdict: Any = None  # What the verifier compared, or None.
    recipe: Any = None  # How inputs were made, to measure with.
    guards: tuple[tuple[Any, bool], ...] = ()  # Compiled expressions with the truth that they must have at a call.


class Vectorized:
    """A loss in array code where that was verified against the original, with the original's name and signature.

    The work is done when it is first called or asked; for arrays of other ranks it is done again.

    Attributes:
        applied: Whether the rewrite is used.
        source: The rewrite as source, also where it was rejected; None if there is none.
        reason: Why the original is kept; None if the rewrite is used.
    """

    __name__: str

    def __init__(self, function: Any, holder: Any = None, example: Mapping[str, Any] | None = None):
        functools.update_wrapper(self, function)
        signature = inspect.signature(function)
        if holder is not None:
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        self.__signature__ = signature
        self._function = function
        self._holder = holder
        self._own = () if holder is None else (holder,)
        self._example = example
        self._decisions: dict[Any, Decision] = {}
        self._chosen: Decision | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.__signature__.bind(*args, **kwargs).arguments
        arrays = {name: value for name, value in given.items() if is_array(value)}
        decision = self._decide(arrays)
        if decision.function is not None and are_sized(arrays, decision.verdict) and self._holds(decision, given):
            try:
                return decision.function(*self._own, *args, **kwargs)
            except Exception as error:
                # Of sizes that no trial had, such as none at all; if they are wrong, the original says so in its words.
                _log.warning("vectorize(%s) runs the original here: the rewrite raised %r", self.__name__, error)
        return self._function(*self._own, *args, **kwargs)

    def _holds(self, decision: Decision, given: Mapping[str, Any]) -> bool:
        """Whether what the rewrite takes for granted is so: constants, functions that were read, kinds of numbers."""
        from flatout.vectorize.interpreter.scopes import digest_of, is_still, outside_of

        if not all(is_still(*pin) for pin in decision.rewrite.pins):
            return False
        if any("int" in str(given[name].dtype) for name in decision.verdict.floats_only if name in given):
            return False
        if not decision.guards:
            return True
        names = {**outside_of(self._function), **decision.rewrite.names, "digest_of": digest_of}
        names |= {
            one.name: one.default for one in self.__signature__.parameters.values() if one.default is not one.empty
        }
        names |= dict(zip(self._function.__code__.co_varnames, self._own, strict=False))  # What `self` is.
        names |= given
        try:
            return all(bool(eval(code, names)) == truth for code, truth in decision.guards)
        except Exception:  # What cannot be asked does not hold.
            return False

    @property
    def applied(self) -> bool:
        return self._answer().function is not None

    @property
    def source(self) -> str | None:
        rewrite = self._answer().rewrite
        return None if rewrite is None else str(rewrite.source)

    @property
    def reason(self) -> str | None:
        reason = self._answer().reason
        return None if reason is None else str(reason)

    @property
    def original(self) -> Callable[..., Any]:
        """The function as it was written."""
        return functools.partial(self._function, *self._own) if self._own else self._function  # type: ignore[no-any-return]

    def explain(self, measure: bool = True) -> str:
        """What the loss became, as source; what was verified; and the gain, measured now.

        Args:
            measure: Whether to measure, which runs the original on a batch of 64.
        """
        from .decide import explain

        return explain(self.__name__, self._answer(), self.original, measure)

    def _answer(self) -> Decision:
        """The decision for the ranks of the first call, or for those that the code suggests."""
        if self._chosen is not None:
            return self._chosen
        if self._example is not None:
            return self._decide(self.__signature__.bind(**self._example).arguments)
        from .decide import suggested

        ranks, decision = suggested(self._function, self._holder)
        sizes = (
            decision.recipe.sizes if decision.recipe else {name: (None,) * (rank - 1) for name, rank in ranks.items()}
        )
        return self._keep((tuple(ranks.items()), pattern(sizes)), decision)

    def _decide(self, arrays: Mapping[str, Any]) -> Decision:
        shapes = {name: tuple(value.shape) for name, value in arrays.items()}
        ranks = {name: len(shape) for name, shape in shapes.items()}
        sizes = {name: shape[1:] for name, shape in shapes.items()}
        key: Any = (tuple(ranks.items()), pattern(sizes))
        known = self._decisions.get(key)
        if known is not None and known.function is not None and known.verdict.is_sized and known.recipe.sizes != sizes:
            key = (*key, tuple(sizes.items()))
        if key not in self._decisions:
            from .decide import decide

            self._keep(key, decide(self._function, ranks, self._holder, shapes))
        return self._decisions[key]

    def _keep(self, key: Any, decision: Decision) -> Decision:
        self._decisions[key] = decision
        # A loss that is vectorized for some arrays is vectorized, whatever was tried first.
        if self._chosen is None or (self._chosen.function is None and decision.function is not None):
            self._chosen = decision
        if decision.function is not None:
            _log.info("vectorize(%s) uses array code", self.__name__)
        else:
            level = logging.INFO if decision.reason.code == "FO100" else logging.WARNING
            _log.log(level, "vectorize(%s) keeps the original: %s", self.__name__, decision.reason)
        return decision

    def __repr__(self) -> str:
        return f"<flatout.vectorize({self.__name__})>"


def vectorize(loss: Any = None, /, *, strict: bool = False, example: Mapping[str, Any] | None = None) -> Any:
    """Turn the loops of a loss or metric into array code, if that is verified in value and gradient.

    Loops over the batch, time, classes, pairs and groups become dimensions, selections become masks, values read on the
    host stay on the device, tables that are read element by element become gathers. The rewrite is used only after it
    agreed with the original on ordinary and adversarial inputs; what is not equal is left as it is, with a reason
    that is logged and kept. The source file is not touched.

    Args:
        loss: A function of `y_true`, `y_pred` and perhaps further arrays; or a `keras.losses.Loss` object or class.
        strict: Raise `CannotVectorize` instead of keeping the original.
        example: Arrays by name on which the original runs, if the verifier finds none by itself.

    Returns:
        A function (or loss object) with the same name and signature, and with `.applied`, `.source`, `.reason` and
        `.explain()`.

    Raises:
        CannotVectorize: With `strict`, if the original is kept.

    Example:
        >>> import flatout, numpy as np
        >>> from keras import ops
        >>> def loss(y_true, y_pred):
        ...     total = 0.0
        ...     for i in range(y_true.shape[0]):
        ...         total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
        ...     return total / y_true.shape[0]
        >>> quick = flatout.vectorize(loss)  # doctest: +SKIP
        >>> quick.applied  # doctest: +SKIP
        True
    """
    if loss is None:
        return functools.partial(vectorize, strict=strict, example=example)
    if isinstance(loss, Vectorized):
        return loss
    if isinstance(loss, type):
        return _class(loss, strict, example)
    if isinstance(loss, types.FunctionType):
        made: Any = Vectorized(loss, example=example)
    elif isinstance(loss, types.MethodType) and isinstance(loss.__func__, types.FunctionType):
        made = Vectorized(loss.__func__, loss.__self__, example)
    elif isinstance(loss, functools.partial):
        made = Vectorized(_with_defaults(loss), example=example)
    elif isinstance(getattr(type(loss), "call", None), types.FunctionType):
        made = _object(loss, example)
    else:
        raise TypeError(
            f"vectorize() takes a function, a method or a Loss object. Received: {loss!r}. "
            "Give it the plain function, before it is wrapped or compiled."
        )
    if strict and not made.applied:
        raise CannotVectorize(f"{getattr(loss, '__name__', type(loss).__name__)}: {made.reason}")
    return made


def _with_defaults(partial: functools.partial[Any]) -> types.FunctionType:
    """The function of a `functools.partial` that was given its last arguments by name, with these as defaults."""
    function = partial.func
    if not isinstance(function, types.FunctionType) or partial.args:
        raise TypeError(
            f"vectorize() takes a partial of a plain function with arguments by name. Received: {partial!r}. "
            "Write a function that calls it."
        )
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, closure=function.__closure__)
    functools.update_wrapper(made, function)
    del made.__wrapped__  # type: ignore[attr-defined]
    spec = inspect.getfullargspec(function)
    held = {
        one.name: one.default for one in inspect.signature(partial).parameters.values() if one.default is not one.empty
    }
    made.__defaults__ = tuple(held[name] for name in spec.args if name in held)
    made.__kwdefaults__ = {name: held[name] for name in spec.kwonlyargs if name in held}
    if any(name not in held for name in spec.args[len(spec.args) - len(made.__defaults__) :]):
        raise TypeError(
            f"vectorize() takes a partial that was given its last arguments. Received: {partial!r}. "
            "Write a function that calls it."
        )
    return made


def _answering(kind: type, **more: Any) -> type:
    """A subclass of a Loss whose objects say what became of them, by way of their `call`."""
    asked = {name: property(operator.attrgetter(f"call.{name}")) for name in ("applied", "source", "reason", "explain")}
    return type(kind.__name__, (kind,), {**asked, **more, "__module__": kind.__module__, "__doc__": kind.__doc__})


def _object(loss: Any, example: Any) -> Any:
    """A copy of a Loss object whose `call` is vectorized."""
    kind = type(loss)
    made = object.__new__(kind)  # copy.copy() would save and load it, as Keras does.
    made.__dict__.update(loss.__dict__)
    made.__class__ = _answering(kind)
    object.__setattr__(made, "call", Vectorized(kind.call, made, example))
    return made


def _class(kind: type, strict: bool, example: Any) -> type:
    """A subclass of a Loss whose objects are vectorized as they are made."""
    call = kind.__dict__.get("call")
    if not isinstance(call, types.FunctionType):
        raise TypeError(f"vectorize() takes a Loss class with a `call` method of its own. Received: {kind!r}.")
    made_by: Any = getattr(kind, "__init__")  # noqa: B009

    @functools.wraps(made_by)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        made_by(self, *args, **kwargs)
        object.__setattr__(self, "call", Vectorized(call, self, example))
        if strict and not self.applied:
            raise CannotVectorize(f"{kind.__name__}: {self.reason}")

    return _answering(kind, __init__=__init__)


def pattern(sizes: Mapping[str, Sequence[int | None]]) -> tuple[tuple[str, ...], ...]:
    """How the sizes of a call's arrays relate: a rewrite is used for calls that relate as those it was verified on.

    `(B, 1)` against `(B, C)` is broadcast where `(B, C)` against `(B, C)` is not, so what was compared on the one says
    nothing of the other. How many columns there are does not matter, nor how many samples. For every dimension behind
    the first: whether its size is 1, that of the first array, or another.

    Args:
        sizes: Of each array's dimensions behind the first; None where they are not known while tracing.
    """
    first: Sequence[int | None] = next(iter(sizes.values()), ())
    return tuple(
        tuple(_relation(size, other) for size, other in itertools.zip_longest(own, first[: len(own)]))
        for own in sizes.values()
    )


def _relation(size: int | None, other: int | None) -> str:
    if size == 1:
        return "one"
    return "same" if size is None or other is None or size == other else "other"


def is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and getattr(value.shape, "rank", 0) is not None


def are_sized(arrays: Mapping[str, Any], verdict: Any) -> bool:
    """Whether the array code can run: TensorFlow may not know all sizes, and that was verified for some or none."""
    if verdict is not None and verdict.unsized == "all":
        return True
    start = 1 if verdict is not None and verdict.unsized == "first" else 0
    return all(size is not None for value in arrays.values() for size in list(value.shape)[start:])
