"""A model, its callbacks and a PyDataset on their way to another process, and what became of them there.

All of them go in one piece, as they are, with what they hold of each other: whatever class the user wrote, built or
not. Keras' own way, a configuration, would lose what has none. On the way back the objects that came from there take
their new state, and what is new among them comes along.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import re
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

from flatout.base.when_used import keras

# Attributes in which Keras has the addresses of objects, or TensorFlow's names of variables.
_OF_ADDRESSES = (
    "_trainable_variables_indices",
    "_exclude_from_weight_decay",
    "_exclude_from_weight_decay_cache",
    "_var_to_optimizer_idx",
    "stored_ids",
    "_nodes",
)
# What was traced stays where it was traced.
_OF_PROCESS = dict.fromkeys(("train_function", "test_function", "predict_function", "_jax_state"))
# Called with an array; returns what another process reads it by, or None to send it along.
Keep = Callable[[np.ndarray], Any]


class Sent:
    """What went to another process: the bytes, and the objects that stayed here."""

    def __init__(self, things: Any, keep: Keep):
        file = io.BytesIO()
        pickler = _Pickler(file, {}, keep)
        pickler.dump_all(things)
        self.data = file.getvalue()
        self._objects = list(pickler.met.values())

    def take_back(self, data: bytes) -> Any:
        """Give the objects the state that `Received.answer` found; returns what it was given."""
        (things, states), addresses = _Unpickler(io.BytesIO(data), self._objects.__getitem__).load_all()
        for thing, state in zip(self._objects, states, strict=True):
            if isinstance(thing, keras.Variable):
                _put_value(thing, state)
            else:
                vars(thing).update(state)
        _mend(self._objects, addresses)
        return things


class Received:
    """What came from another process; `things` are what was sent."""

    def __init__(self, data: bytes, load_kept: Callable[[Any], np.ndarray]):
        unpickler = _Unpickler(io.BytesIO(data), load_kept)
        self.things, _ = unpickler.load_all()
        self._objects = unpickler.objects

    def answer(self, things: Any) -> bytes:
        """What `Sent.take_back` takes there: `things`, and the state of all that came from there."""
        numbers = {id(thing): number for number, thing in enumerate(self._objects)}
        states = [_state(thing) for thing in self._objects]
        try:
            return self._packed(things, states, numbers)
        except Exception:
            # What cannot be sent, such as a callback's open file, stays as it was there: not all shall be lost for it.
            return self._packed(things, [self._without_unsendable(state, numbers) for state in states], numbers)

    def _packed(self, things: Any, states: list[Any], numbers: dict[int, int]) -> bytes:
        file = io.BytesIO()
        pickler = _Pickler(file, numbers, _send_along)
        pickler.met.update((id(thing), thing) for thing in self._objects)
        pickler.dump_all((things, states))
        return file.getvalue()

    def _without_unsendable(self, state: Any, numbers: dict[int, int]) -> Any:
        if not isinstance(state, dict):
            return state
        sendable = {}
        for name, value in state.items():
            with contextlib.suppress(Exception):
                _Pickler(io.BytesIO(), numbers, _send_along).dump_all(value)
                sendable[name] = value
        return sendable


def _send_along(array: np.ndarray) -> None:
    """No array is kept apart."""


def _state(thing: Any) -> Any:
    if isinstance(thing, keras.Variable):
        return None if thing._value is None else np.asarray(keras.ops.convert_to_numpy(thing._value))
    return {**vars(thing), **{name: None for name in _OF_PROCESS if name in vars(thing)}}


def _put_value(variable: Any, value: np.ndarray | None) -> None:
    if value is None:
        return
    if variable._value is None:
        # Its initializer waits for the first use; another process has used it.
        variable._initialize(keras.ops.convert_to_tensor(value, dtype=variable.dtype))
    else:
        variable.assign(value)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Sends Keras' objects as they are; `numbers` are those of objects that the other process has.

    Objects go first, their states after them: a graph of layers that hold each other would be too deep.
    """

    def __init__(self, file: io.BytesIO, numbers: dict[int, int], keep: Keep):
        super().__init__(file, protocol=5)
        self.met: dict[int, Any] = {}
        self._numbers, self._keep = numbers, keep
        self._blanks: list[Any] = []

    def dump_all(self, things: Any) -> None:
        self.dump(things)
        blanks = None
        while blanks or blanks is None:
            blanks, self._blanks = self._blanks, []
            self.dump([(thing, _state(thing)) for thing in blanks])
        self.dump([(address, _name_of(thing), thing) for address, thing in self.met.items()])

    def persistent_id(self, thing: Any) -> Any:
        if id(thing) in self._numbers:
            return self._numbers[id(thing)]
        return self._keep(thing) if type(thing) is np.ndarray else None

    def reducer_override(self, thing: Any) -> Any:
        saveable, tracked, default_strategy = _classes()
        if isinstance(thing, (saveable, keras.callbacks.Callback, keras.utils.PyDataset)):
            self.met[id(thing)] = thing
            self._blanks.append(thing)
            return _blank, (type(thing),)
        if isinstance(thing, keras.Variable):
            self.met[id(thing)] = thing
            return super().reducer_override(thing)
        if type(thing) in tracked:
            items = list(thing.items()) if isinstance(thing, dict) else list(thing)
            return _blank, (type(thing),), (vars(thing), items), None, None, _fill
        if type(thing) is weakref.ref:
            return _reference, (thing(),)
        if default_strategy is not None and isinstance(thing, default_strategy):
            return _strategy_here, ()
        return super().reducer_override(thing)


class _Unpickler(pickle.Unpickler):
    """Takes what `_Pickler.dump_all` made; `objects` are then those that it met, in its order."""

    objects: list[Any]

    def __init__(self, file: io.BytesIO, persistent: Callable[[Any], Any]):
        super().__init__(file)
        self._persistent = persistent

    def load_all(self) -> tuple[Any, dict[Any, Any]]:
        """The things, and the addresses of here for those of there."""
        things = self.load()
        while states := self.load():
            for thing, state in states:
                vars(thing).update(state)
        met = self.load()
        self.objects = [thing for _, _, thing in met]
        addresses: dict[Any, Any] = {before: id(thing) for before, _, thing in met}
        addresses.update((name, _name_of(thing)) for _, name, thing in met if name is not None)
        _mend(self.objects, addresses)
        return things, addresses

    def persistent_load(self, number: Any) -> Any:
        return self._persistent(number)


@functools.cache
def _classes() -> tuple[type, tuple[type, ...], type | None]:
    """What Keras can save; its lists, dicts and sets that watch; TensorFlow's strategy where the user set none."""
    from keras.src.saving.keras_saveable import KerasSaveable
    from keras.src.utils import tracking

    strategy = None
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        strategy = type(tf.distribute.get_strategy()) if not tf.distribute.has_strategy() else None
    return KerasSaveable, (tracking.TrackedList, tracking.TrackedDict, tracking.TrackedSet), strategy


def _blank(kind: type) -> Any:
    # Not `kind.__new__`, which for layers wants arguments, and counts.
    made: Any = kind
    return made.__new__(made) if issubclass(kind, (list, dict, set)) else object.__new__(kind)


def _fill(thing: Any, state: tuple[dict[str, Any], list[Any]]) -> None:
    vars(thing).update(state[0])
    if isinstance(thing, list):
        list.extend(thing, state[1])
    else:
        (dict if isinstance(thing, dict) else set).update(thing, state[1])


def _reference(thing: Any) -> Any:
    return weakref.ref(thing) if thing is not None else _nothing


def _nothing() -> None:
    """What a reference to something that is gone gives."""


def _strategy_here() -> Any:
    import tensorflow as tf

    return tf.distribute.get_strategy()


def _name_of(thing: Any) -> str | None:
    """What TensorFlow tells a variable by."""
    return getattr(getattr(thing, "_value", None), "_unique_id", None)


def _mend(things: list[Any], addresses: dict[Any, Any]) -> None:
    """Have the addresses of here wherever Keras keeps some."""
    for thing in things:
        vars(thing).update(_mended(vars(thing), addresses))
        tracker = vars(thing).get("_tracker")
        if tracker is not None:
            vars(tracker).update(_mended(vars(tracker), addresses))


def _mended(state: dict[str, Any], addresses: dict[Any, Any]) -> dict[str, Any]:
    return {name: _renewed(value, addresses) if name in _OF_ADDRESSES else value for name, value in state.items()}


def _renewed(value: Any, addresses: dict[Any, Any]) -> Any:
    """A value with other addresses in the place of those that it has, also at the head of a text."""
    if isinstance(value, dict):
        return {_renewed(key, addresses): _renewed(item, addresses) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return type(value)(_renewed(item, addresses) for item in value)
    if isinstance(value, str) and value not in addresses:
        return re.sub("^[0-9]+(?=_ib-)", lambda found: str(addresses.get(int(found[0]), found[0])), value)
    return addresses.get(value, value) if type(value) in (int, str) else value
