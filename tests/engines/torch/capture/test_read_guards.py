"""What a callback, or the code between calls, changes in Python's state is seen by the next step, as in stock Keras."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import functools
import operator
import sys
import types

import numpy as np
import pytest

keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("needs KERAS_BACKEND=torch", allow_module_level=True)

import torch  # noqa: E402
from keras import layers, ops  # noqa: E402

import flatout  # noqa: E402

pytestmark = pytest.mark.usefixtures("forced")

X = np.random.default_rng(0).normal(size=(96, 6)).astype("float32")
Y = X[:, :1] * 2

WEIGHT = 1.0
SETTINGS = types.ModuleType("settings_of_a_user")
sys.modules[SETTINGS.__name__] = SETTINGS


def weigh(t, p):
    return ops.mean(ops.square(t - p))


def scale():
    return WEIGHT


@dataclasses.dataclass
class Config:
    weight: float = 1.0
    inner: object = None


@dataclasses.dataclass(slots=True)
class Slotted:
    weight: float = 1.0


class Loss(keras.losses.Loss):
    rate = 1.0

    def __init__(self, weight=1.0):
        super().__init__()
        self.weight = weight

    def call(self, t, p):
        return self.rate * self.weight * ops.mean(ops.square(t - p), -1)


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self):
        self.rate = 0.05

    def __call__(self, step):
        return self.rate + 0.0 * ops.cast(step, "float32")


class Scaled(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.config_of_user = layers.Dense(1), Config(inner=Slotted())

    def call(self, x):
        return self.dense(x) * self.config_of_user.inner.weight


def model_of(loss="mse", hidden=(), model=None, optimizer="sgd", metrics=()):
    keras.utils.set_random_seed(1)
    model = model() if model else keras.Sequential([keras.Input((6,)), *hidden, layers.Dense(1)])
    model.compile(optimizer, loss, metrics=list(metrics))
    return model


def a_global():
    def change(value):
        global WEIGHT
        WEIGHT = value

    change(1.0)
    return model_of(lambda t, p: WEIGHT * weigh(t, p)), change


def a_global_in_a_helper():
    model, change = a_global()
    model.compile("sgd", lambda t, p: scale() * weigh(t, p))
    return model, change


def a_closure():
    weight = 1.0

    def change(value):
        nonlocal weight
        weight = value

    return model_of(lambda t, p: weight * weigh(t, p)), change


def a_dict():
    weights = {"a": {"b": 1.0}}
    return model_of(lambda t, p: weights["a"]["b"] * weigh(t, p)), lambda value: weights["a"].update(b=value)


def a_key_added_later():
    weights = {}
    return model_of(lambda t, p: weights.get("a", 1.0) * weigh(t, p)), lambda value: weights.update(a=value)


def a_list():
    weights = [1.0]
    return model_of(lambda t, p: weights[0] * weigh(t, p)), lambda value: weights.__setitem__(0, value)


def an_array():
    weights = np.ones(2, "float32")
    return model_of(lambda t, p: float(weights[1]) * weigh(t, p)), lambda value: weights.__setitem__(1, value)


def a_module():
    SETTINGS.weight = 1.0
    return model_of(lambda t, p: SETTINGS.weight * weigh(t, p)), lambda value: setattr(SETTINGS, "weight", value)


def a_default():
    def loss(t, p, weights=[1.0]):  # noqa: B006
        return weights[0] * weigh(t, p)

    return model_of(loss), lambda value: loss.__defaults__[0].__setitem__(0, value)


def a_partial():
    config = Config()

    def loss(t, p, config):
        return config.weight * weigh(t, p)

    return model_of(functools.partial(loss, config=config)), lambda value: setattr(config, "weight", value)


def a_function_attribute():
    def loss(t, p):
        return loss.weight * weigh(t, p)

    loss.weight = 1.0
    return model_of(loss), lambda value: setattr(loss, "weight", value)


def by_getattr():
    config = Config()
    return model_of(lambda t, p: getattr(config, "wei" + "ght") * weigh(t, p)), lambda v: setattr(config, "weight", v)


def a_loss_object():
    loss = Loss()
    return model_of(loss), lambda value: setattr(loss, "weight", value)


def a_class_attribute():
    loss = Loss()
    Loss.rate = 1.0
    return model_of(loss), lambda value: setattr(Loss, "rate", value)


def hiding_a_class_attribute():
    Loss.rate = 1.0
    loss = Loss()
    return model_of(loss), lambda value: setattr(loss, "rate", value)


def a_dataclass_with_slots_on_the_model():
    model = model_of(model=Scaled)
    return model, lambda value: setattr(model.config_of_user.inner, "weight", value)


def a_regularizer():
    regularizer = keras.regularizers.L2(0.1)
    model = model_of(hidden=[layers.Dense(5, kernel_regularizer=regularizer)])
    return model, lambda value: setattr(regularizer, "l2", value)


def an_activation():
    model = model_of(hidden=[layers.Dense(5)])
    return model, lambda value: setattr(model.layers[0], "activation", keras.activations.relu)


def a_dropout_rate():
    model = model_of(hidden=[layers.Dropout(0.1, seed=1)])
    return model, lambda value: setattr(model.layers[0], "rate", 0.5)


def a_frozen_layer():
    model = model_of(hidden=[layers.Dense(5)])
    return model, lambda value: setattr(model.layers[0], "trainable", False)


def a_schedule():
    schedule = Schedule()
    return model_of(optimizer=keras.optimizers.SGD(schedule)), lambda value: setattr(schedule, "rate", value / 10)


def an_argument_of_a_metric():
    metric = keras.metrics.BinaryAccuracy(threshold=0.5)
    return model_of(metrics=[metric]), lambda value: metric._fn_kwargs.__setitem__("threshold", value)


def momentum_of_the_optimizer():
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    return model_of(optimizer=optimizer), lambda value: setattr(optimizer, "momentum", value)


def a_lambda_layer():
    config = {"scale": 1.0}
    model = model_of(hidden=[layers.Lambda(lambda x: x * config["scale"])])
    return model, lambda value: config.update(scale=value)


def imported_in_the_function():
    def loss(t, p):
        from settings_of_a_user import weight

        return weight * weigh(t, p)

    SETTINGS.weight = 1.0
    return model_of(loss), lambda value: setattr(SETTINGS, "weight", value)


def a_global_that_comes_later():
    def loss(t, p):
        try:
            return LATER * weigh(t, p)
        except NameError:
            return weigh(t, p)

    globals().pop("LATER", None)
    return model_of(loss), lambda value: globals().update(LATER=value)


def a_mapping_of_the_standard_library():
    weights = collections.ChainMap({}, collections.UserDict(a=1.0))
    return model_of(lambda t, p: weights["a"] * weigh(t, p)), lambda value: weights.maps[1].update(a=value)


def a_read_only_view():
    weights = {"a": 1.0}
    view = types.MappingProxyType(weights)
    return model_of(lambda t, p: view["a"] * weigh(t, p)), lambda value: weights.update(a=value)


def an_attribute_of_a_dict():
    class Weights(dict):
        weight = 1.0

    weights = Weights()
    weights.weight = 1.0
    return model_of(lambda t, p: weights.weight * weigh(t, p)), lambda value: setattr(weights, "weight", value)


def a_key_of_a_dict():
    config = Loss()
    table = {config: 1.0}
    return model_of(lambda t, p: next(iter(table)).weight * weigh(t, p)), lambda v: setattr(config, "weight", v)


def an_array_of_objects():
    table = np.empty(1, object)
    table[0] = [1.0]
    return model_of(lambda t, p: table[0][0] * weigh(t, p)), lambda value: table[0].__setitem__(0, value)


def a_masked_array():
    table = np.ma.array([1.0, 2.0], mask=[False, False])
    change = lambda value: table.mask.__setitem__(1, value != 1.0)  # noqa: E731
    return model_of(lambda t, p: float(table.sum()) * weigh(t, p)), change


def a_default_that_is_replaced():
    def loss(t, p, weight=1.0):
        return weight * weigh(t, p)

    return model_of(loss), lambda value: setattr(loss, "__defaults__", (value,))


def code_that_is_replaced():
    def loss(t, p):
        return weigh(t, p)

    def other(t, p):
        return 0.25 * weigh(t, p)

    codes = {1.0: loss.__code__}
    return model_of(loss), lambda value: setattr(loss, "__code__", codes.get(value, other.__code__))


def a_method_of_a_class():
    class Other(Loss):
        def call(self, t, p):
            return self.factor() * super().call(t, p)

        def factor(self):
            return 1.0

    return model_of(Other()), lambda value: setattr(Other, "factor", lambda self: value)


def a_method_of_an_object():
    model = model_of(hidden=[layers.Dense(5)])
    dense = model.layers[0]
    return model, lambda value: setattr(dense, "call", lambda x, training=None: layers.Dense.call(dense, x) * value)


def a_method_of_keras():
    class Rectified(layers.ReLU):
        pass

    model = model_of(hidden=[Rectified()])
    return model, lambda value: setattr(Rectified, "call", lambda self, x: x * value)


def the_step_itself():
    model = model_of()
    for name in ("train_step", "test_step"):
        setattr(model, name, getattr(model, name))

    def change(value):
        for name in ("train_step", "test_step"):
            step = getattr(type(model), name)
            setattr(model, name, lambda data, step=step: step(model, (data[0] * value, data[1])))

    return model, change


def another_class():
    class Other(Config):
        pass

    Config.rate, Other.rate = 1.0, 0.5
    config = Config()
    change = lambda value: setattr(config, "__class__", Config if value == 1.0 else Other)  # noqa: E731
    return model_of(lambda t, p: config.rate * weigh(t, p)), change


def an_attribute_called_training():
    config = types.SimpleNamespace(training=1.0)
    return model_of(lambda t, p: config.training * weigh(t, p)), lambda value: setattr(config, "training", value)


def a_pattern():
    config = Config()

    def loss(t, p):
        match config:
            case Config(value):
                return value * weigh(t, p)

    return model_of(loss), lambda value: setattr(config, "weight", value)


def gradients_of_a_weight():
    model = model_of(hidden=[layers.Dense(5)])
    return model, lambda value: model.layers[0].kernel.value.requires_grad_(value == 1.0)


def a_hook_of_a_module_of_torch():
    linear = torch.nn.Linear(6, 5)
    handles = []

    def change(value):
        while handles:
            handles.pop().remove()
        handles.append(linear.register_forward_hook(lambda module, inputs, out: out * value))

    return model_of(hidden=[layers.TorchModuleWrapper(torch.nn.Sequential(linear))]), change


CASES = [value for value in list(globals().values()) if isinstance(value, types.FunctionType)]
CASES = [case for case in CASES if case.__module__ == __name__ and not case.__code__.co_argcount and case is not scale]


def run(fit, case):
    keras.utils.set_random_seed(1)
    model, change = case()
    told = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: change([0.25, 0.5, 0.5][epoch]))
    history = fit(model, X, Y, epochs=3, batch_size=16, verbose=0, shuffle=False, callbacks=[told]).history
    return history, model.get_weights()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_a_callback_changes_between_epochs_is_seen(case):
    expected, weights = run(keras.Model.fit, case)
    found, ours = run(flatout.fit, case)
    assert found == expected
    for mine, theirs in zip(ours, weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert flatout.explain()[-1].engine == "torch"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_changes_between_calls_is_seen(case):
    def losses(evaluate):
        keras.utils.set_random_seed(1)
        model, change = case()
        found = []
        for value in (1.0, 1.0, 1.0, 0.25, 1.0, 0.5):
            change(value)
            found.append(evaluate(model, X, Y, batch_size=16, verbose=0))
        return found

    assert losses(flatout.evaluate) == losses(keras.Model.evaluate)


def test_what_a_callback_changes_between_batches_is_seen():
    def losses(fit):
        model, change = a_dict()
        told = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: change(1 / (batch + 1)))
        return fit(model, X, Y, epochs=2, batch_size=16, verbose=0, shuffle=False, callbacks=[told]).history

    assert losses(flatout.fit) == losses(keras.Model.fit)


@pytest.mark.parametrize("value", [[[1.0] for _ in range(3000)], ctypes.c_double(1.0), operator.attrgetter("shape")])
def test_what_cannot_be_guarded_is_not_recorded(value):
    model = model_of(lambda t, p: weigh(t, p) * (0.0 if value is None else 1.0))
    flatout.fit(model, X, Y, batch_size=16, verbose=0)
    assert [why.code for why in flatout.explain()[-1].reasons] == ["side_effects"]


class Resets(keras.metrics.Mean):
    """Its steps depend on how often it was reset."""

    resets = 0

    def update_state(self, t, p, sample_weight=None):
        super().update_state(ops.mean(p) * self.resets)

    def reset_state(self):
        super().reset_state()
        self.resets += 1


@pytest.mark.parametrize("name", ["fit", "evaluate"])
def test_what_reset_state_changes_is_seen(name):
    def logs(function):
        model = model_of(metrics=[Resets(name="resets")])
        epochs = {"epochs": 3, "shuffle": False} if name == "fit" else {}
        found = [function(model, X, Y, batch_size=16, verbose=0, **epochs) for _ in range(2)]
        return [getattr(item, "history", item) for item in found]

    assert logs(getattr(flatout, name)) == logs(getattr(keras.Model, name))
