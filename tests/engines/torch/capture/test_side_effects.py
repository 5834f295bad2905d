"""A step that does more than compute runs as Python at every step, exactly as often as in stock Keras."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import math
import os
import random
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("needs KERAS_BACKEND=torch", allow_module_level=True)

import torch  # noqa: E402
from keras import layers, ops  # noqa: E402

from flatout.engines.torch.engine import TorchEngine  # noqa: E402
from flatout.engines.torch.replay.step_loop import EagerLoop, ReplayLoop  # noqa: E402

# A step that takes long, also on a busy machine, would not be recorded.
pytestmark = pytest.mark.usefixtures("forced")

ROWS, BATCH = 40, 16
STEPS = 3
X = np.random.default_rng(0).normal(size=(ROWS, 6)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, ROWS)

LIST, DICT, NESTED, SET, QUEUE = [], {}, {"inner": {"count": 0}}, set(), collections.deque(maxlen=100)
COUNTER, ARRAY, GENERATOR = collections.Counter(), np.zeros(3), np.random.default_rng(0)
BOX, MODULE, NUMBERS = types.SimpleNamespace(count=0), types.ModuleType("settings"), itertools.count()
CONSTANTS = {"scale": 0.5, "names": ["a", "b"]}
GLOBAL = 0
OPEN_FILES = []
LOGGER = logging.getLogger("flatout.test")


class Effect(layers.Layer):
    """Calls a function of the user at every step, and returns its input."""

    def __init__(self, effect):
        super().__init__()
        self.effect = effect

    def call(self, x):
        self.effect(self, x)
        return x


def set_global(layer, x):
    global GLOBAL
    GLOBAL += 1


class Recorder:
    calls = 0

    def __init__(self):
        self.seen = 0

    def note(self):
        self.seen += 1

    @classmethod
    def note_class(cls):
        cls.calls += 1


@dataclasses.dataclass(slots=True)
class Slotted:
    count: int = 0

    def note(self):
        self.count += 1


@pytest.fixture(autouse=True)
def _closed_files():
    yield
    while OPEN_FILES:
        OPEN_FILES.pop().close()


def make(*extra, cls=keras.Sequential, loss="sparse_categorical_crossentropy", metrics=("accuracy",), build=True):
    keras.utils.set_random_seed(5)
    model = cls([keras.Input((6,)), layers.Dense(8, activation="relu"), *extra, layers.Dense(3, activation="softmax")])
    model.compile("adam", loss, metrics=list(metrics))
    if build:
        model._symbolic_build(data_batch=(X[:2], Y[:2]))
        model.optimizer.build(model.trainable_variables)
    return model


def prepare(model, rows=ROWS, task="train"):
    engine = TorchEngine()
    return engine.prepare(model, task, engine.place((X[:rows], Y[:rows])), rows, BATCH)


def run(program, steps=STEPS):
    program.begin_pass(None)
    program.run(0, steps, True)
    program.end_pass()


def outer_variable():
    count = 0

    def effect(layer, x):
        nonlocal count
        count += 1

    return effect, lambda: count


def closed_over(container, change):
    def effect(layer, x):
        change(container)

    return effect, lambda: len(container)


def written_file(folder: Path, write):
    path = folder / "log.txt"
    path.write_text("")
    return (lambda layer, x: write(path)), lambda: len(path.read_text())


def in_a_file(write):
    return lambda folder: written_file(folder, write)


def open_and_write(path):
    with open(path, "a") as file:  # noqa: PTH123
        file.write("x")


def to_open_file(folder):
    file = (folder / "open.txt").open("w")
    OPEN_FILES.append(file)

    def effect(layer, x):
        file.write("x")

    def count():
        file.flush()
        return (folder / "open.txt").stat().st_size

    return effect, count


def logged(folder):
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    LOGGER.handlers = [handler]
    return (lambda layer, x: LOGGER.error("step")), lambda: len(records)


def summary(folder):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))

    def count():
        writer.flush()
        return sum(file.stat().st_size for file in folder.iterdir())

    return (lambda layer, x: writer.add_event(Event(wall_time=1.0, step=1))), count


def saved_tensor(folder):
    file = (folder / "saved.pt").open("wb")
    OPEN_FILES.append(file)

    def count():
        file.flush()
        return (folder / "saved.pt").stat().st_size

    return (lambda layer, x: torch.save([1], file)), count


def simple(effect, count):
    return lambda folder: (effect, count)


def nothing():
    return None


def nested_store(layer, x):
    NESTED["inner"]["count"] += 1


def item_store(layer, x):
    DICT["count"] = DICT.get("count", 0) + 1


def array_store(layer, x):
    ARRAY[0] += 1


def object_store(layer, x):
    BOX.count += 1


def module_store(layer, x):
    MODULE.count = getattr(MODULE, "count", 0) + 1


def box():
    return BOX


def object_of_a_helper_store(layer, x):
    box().count += 1


def set_attribute(layer, x):
    setattr(layer, "times", getattr(layer, "times", 0) + 1)  # noqa: B010


def helper(values):
    values.append(1)


RECORDER, SLOTTED = Recorder(), Slotted()
EFFECTS = {
    "print": simple(lambda layer, x: print("step"), nothing),
    "standard error": simple(lambda layer, x: sys.stderr.write("step"), nothing),
    "open": in_a_file(open_and_write),
    "pathlib": in_a_file(lambda path: path.write_text(path.read_text() + "x")),
    "open file": to_open_file,
    "logging": logged,
    "tensorboard": summary,
    "torch.save": saved_tensor,
    "time": simple(lambda layer, x: time.time(), nothing),
    "random": simple(lambda layer, x: random.random(), random.getstate),
    "numpy's generator": simple(lambda layer, x: GENERATOR.normal(), lambda: repr(GENERATOR.bit_generator.state)),
    "environment": simple(lambda layer, x: os.environ.get("HOME"), nothing),
    "json": simple(lambda layer, x: json.dumps({}), nothing),
    "global": simple(set_global, lambda: GLOBAL),
    "outer variable": lambda folder: outer_variable(),
    "list": simple(lambda layer, x: LIST.append(1), lambda: len(LIST)),
    "list in place": simple(lambda layer, x: LIST.__iadd__([1]), lambda: len(LIST)),
    "list through a helper": simple(lambda layer, x: helper(LIST), lambda: len(LIST)),
    "dict": simple(item_store, lambda: DICT.get("count", 0)),
    "dict in a dict": simple(nested_store, lambda: NESTED["inner"]["count"]),
    "set": simple(lambda layer, x: SET.add(len(SET)), lambda: len(SET)),
    "deque": simple(lambda layer, x: QUEUE.append(1), lambda: len(QUEUE)),
    "counter": simple(lambda layer, x: COUNTER.update("a"), lambda: COUNTER["a"]),
    "array": simple(array_store, lambda: ARRAY[0]),
    "closed-over list": lambda folder: closed_over([], lambda values: values.append(1)),
    "closed-over dict": lambda folder: closed_over({}, lambda values: values.update({len(values): 1})),
    "bound method of a list": lambda folder: (lambda values: (lambda layer, x: values.append(x), lambda: len(values)))(
        []
    ),
    "object": simple(object_store, lambda: BOX.count),
    "object that a helper returns": simple(object_of_a_helper_store, lambda: BOX.count),
    "object's method": simple(lambda layer, x: RECORDER.note(), lambda: RECORDER.seen),
    "object with slots": simple(lambda layer, x: SLOTTED.note(), lambda: SLOTTED.count),
    "class": simple(lambda layer, x: Recorder.note_class(), lambda: Recorder.calls),
    "module": simple(module_store, lambda: getattr(MODULE, "count", 0)),
    "iterator": simple(lambda layer, x: next(NUMBERS), lambda: int(repr(NUMBERS)[6:-1])),
    "setattr": simple(set_attribute, nothing),
    "tensor kept by the layer": simple(lambda layer, x: setattr(layer, "last", x), nothing),
    "seed": simple(lambda layer, x: torch.manual_seed(1), nothing),
    "partial function": simple(lambda layer, x: functools.partial(json.dumps, {})(), nothing),
}


@pytest.mark.parametrize("rows", [ROWS, BATCH], ids=["several batches", "one batch"])
@pytest.mark.parametrize("kind", EFFECTS)
def test_an_effect_happens_once_per_step(kind, rows, tmp_path):
    effect, count = EFFECTS[kind](tmp_path)
    steps = -(-rows // BATCH)
    stock = make(Effect(effect))
    counts = [count()]
    for i in range(steps):
        stock.train_step((torch.tensor(X[i * BATCH : (i + 1) * BATCH]), torch.tensor(Y[i * BATCH : (i + 1) * BATCH])))
    counts.append(count())

    model = make(Effect(effect))
    before = count()
    program = prepare(model, rows)
    assert isinstance(program.loop, EagerLoop)
    assert [why.code for why in program.reasons] == ["side_effects"], program.reasons
    assert count() == before
    run(program, steps)
    if isinstance(before, (int, float)):
        assert count() - before == counts[1] - counts[0] > 0


def test_the_reason_names_the_call_and_its_line():
    program = prepare(make(Effect(lambda layer, x: time.perf_counter())))
    line = test_the_reason_names_the_call_and_its_line.__code__.co_firstlineno + 1
    message = program.reasons[0].message
    assert message == (
        f"train_step does more than compute: it calls time.perf_counter (test_side_effects.py:{line}); "
        "it runs as Python at every step."
    )


class History(keras.Sequential):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.rows = []
        self.table = {}

    def train_step(self, data):
        self.rows.append(data[0].shape[0])
        return super().train_step(data)


def test_a_list_of_the_model_is_extended_at_every_step():
    model = make(cls=History)
    program = prepare(model)
    assert [why.code for why in program.reasons] == ["side_effects"]
    assert model.rows == []
    run(program)
    assert model.rows == [16, 16, 8]


def test_effects_in_losses_metrics_and_test_steps_are_found():
    def loss(y_true, y_pred):
        LIST.append(1)
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred)

    class Steps(keras.metrics.Mean):
        steps = 0

        def update_state(self, *arguments, **names):
            self.steps += 1
            return super().update_state(ops.ones(()))

    for model in (make(loss=loss), make(metrics=[Steps()])):
        for task in ("train", "test"):
            assert [why.code for why in prepare(model, task=task).reasons] == ["side_effects"]
        assert isinstance(prepare(model, task="predict").loop, ReplayLoop)


def test_an_effect_before_the_end_of_a_swallowed_error_is_found():
    def effect(layer, x):
        with contextlib.suppress(Exception):
            time.time()

    assert [why.code for why in prepare(make(Effect(effect))).reasons] == ["side_effects"]


def test_a_hook_of_a_profiler_is_put_back():
    events = []

    def hook(*event):
        events.append(event[1])

    model = make(Effect(lambda layer, x: x))
    sys.setprofile(hook)
    try:
        prepare(model)
        assert sys.getprofile() is hook
    finally:
        sys.setprofile(None)


class Pooled(layers.Layer):
    """Local containers, comprehensions, formatting, branches on shapes, helpers, closures."""

    def __init__(self, scales=(1.0, 2.0)):
        super().__init__()
        self.scales = list(scales)
        self.options = {"power": 2}
        self.inner = [layers.Dense(4), layers.Dense(4)]

    def call(self, x, training=False, **names):
        outs = []
        names.setdefault("unused", 1)
        names.pop("unused")
        for scale in self.scales:
            outs.append(x * scale)
        outs.extend([out * CONSTANTS["scale"] for out in outs])
        outs += [x]
        table = {f"out_{i}": out for i, out in enumerate(outs)}
        table.update(first=outs[0])
        table["last"] = outs[-1]
        del table["first"]
        assert isinstance(x, torch.Tensor), f"received {x!r}"
        if len(outs) > 3 and math.sqrt(4) == 2.0:
            table["power"] = ops.power(x, self.options.get("power", 1))
        groups = collections.defaultdict(list)
        for key, value in sorted(table.items()):
            groups[key[0]].append(value)
        total = 0

        def add(value):
            nonlocal total
            total = total + value

        for value in itertools.chain.from_iterable(groups.values()):
            add(value)
        shapes = np.zeros(2)
        shapes[0] = x.shape[-1]
        pair = Pair(total, total / shapes[0])
        pair.second = self.inner[0](pair.second)
        mean = functools.reduce(lambda a, b: a + b, [pair.second, self.inner[1](pair.first)])
        return ops.concatenate([mean, _collected([], x)], axis=-1)

    def build(self, shape):
        for layer in self.inner:
            layer.build(shape)


@dataclasses.dataclass
class Pair:
    first: object
    second: object


def _collected(parts, x):
    for part in (x, x):
        parts.append(part)
    with contextlib.nullcontext():
        return ops.concatenate(parts, axis=-1)


class Custom(keras.Sequential):
    def train_step(self, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        self.zero_grad()
        y_pred = self(x, training=True)
        loss = self.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight)
        self._loss_tracker.update_state(loss, sample_weight=len(x))
        loss.backward()
        variables = self.trainable_weights[:]
        gradients = [v.value.grad for v in variables]
        with torch.no_grad():
            self.optimizer.apply(gradients, variables)
        logs = {}
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
            logs.update(self.get_metrics_result())
        logs["twice"] = logs["loss"] * 2
        return logs


class Smooth(keras.losses.Loss):
    def call(self, y_true, y_pred):
        y_true = ops.cast(ops.reshape(y_true, (-1, 1)) == ops.arange(3), "float32")
        return -ops.sum((0.9 * y_true + 0.1 / 3) * ops.log(y_pred + 1e-7), axis=-1)


class Share(keras.metrics.Metric):
    def __init__(self, name="share", **names):
        super().__init__(name=name, **names)
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(ops.mean(y_pred[:, 0]))

    def result(self):
        return self.total.value


@pytest.mark.parametrize("rows", [ROWS, BATCH])
def test_ordinary_custom_code_is_captured(rows):
    model = make(Pooled(), cls=Custom, loss=Smooth(), metrics=[Share()])
    for task in ("train", "test", "predict"):
        program = prepare(model, rows, task)
        assert isinstance(program.loop, ReplayLoop), program.reasons


def test_a_cache_that_is_filled_once_is_no_effect():
    cache = {}

    def effect(layer, x):
        if "mask" not in cache:
            cache["mask"] = 1.0
        layer.ready = True

    assert isinstance(prepare(make(Effect(effect))).loop, ReplayLoop)


def test_a_method_of_keras_that_the_user_replaced_is_watched(monkeypatch):
    original = layers.Dense.call

    def call(self, inputs, training=None):
        LIST.append(1)
        return original(self, inputs)

    monkeypatch.setattr(layers.Dense, "call", call)
    assert [why.code for why in prepare(make()).reasons] == ["side_effects"]
