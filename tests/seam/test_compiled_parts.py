"""What the seam says of models: their layers, what compile made of them, what is built, their compiled_parts."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from flatout.seam import compiled_parts, layers, trainers, variable_state


def _sequential(**compiled: Any) -> Any:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    if compiled:
        model.compile(**compiled)
    return model


def test_a_model_and_its_layers() -> None:
    model = keras.Sequential([keras.layers.Input((2,)), _sequential(), keras.layers.Dense(4)])
    kinds = [type(layer).__name__ for layer in layers.all_layers(model)]
    assert kinds.count("Dense") == 3
    assert kinds.count("Sequential") == 2
    assert layers.automatic_name(keras.layers.BatchNormalization()) == "batch_normalization"


def test_the_graph_of_sequential_and_functional_models_and_of_others() -> None:
    sequential = _sequential()
    assert layers.outputs_structure(sequential).shape == (None, 1)
    inputs = {"a": keras.Input((2,)), "b": keras.Input((2,))}
    functional = keras.Model(inputs, keras.layers.Add()(list(inputs.values())))
    assert type(functional) is layers.functional_class()
    assert set(layers.inputs_structure(functional)) == {"a", "b"}
    layer, node = layers.made_by(functional.outputs[0])
    assert type(layer) is keras.layers.Add
    assert len(node.input_tensors) == 2

    class Own(keras.Model):
        pass

    assert layers.inputs_structure(Own()) is None
    assert layers.outputs_structure(keras.Sequential([keras.layers.Dense(1)])) is None


def test_a_locked_model_takes_new_state_and_is_locked_again() -> None:
    model = _sequential()
    model(np.ones((1, 2), "float32"))
    with layers.open_to_new_state(model):
        model.more = keras.metrics.Mean(name="more")
    assert any(metric is model.more for metric in model.metrics)
    with layers.open_to_new_state(model):
        layers.untrack(model, model.more)
    assert not any(metric is model.more for metric in model.metrics)


def test_what_compile_was_given() -> None:
    model = _sequential()
    assert compiled_parts.given_loss(model) is None
    assert compiled_parts.given_metrics(model) is None

    def own(y_true: Any, y_pred: Any) -> Any:
        return keras.ops.mean(y_true - y_pred)

    model.compile("sgd", own, metrics=["mae"], weighted_metrics=["mse"])
    assert compiled_parts.given_loss(model) is own
    assert compiled_parts.given_metrics(model) == ["mae"]
    assert compiled_parts.given_weighted_metrics(model) == ["mse"]
    assert trainers.has_built_layers(model)
    assert trainers.is_unbuilt(model)
    trainers.build_on_batch(model, (np.ones((1, 2), "float32"), np.ones((1, 1), "float32")))
    assert not trainers.is_unbuilt(model)
    ((loss, weight),) = compiled_parts.losses_of_outputs(compiled_parts.compile_loss(model))
    assert weight is None
    assert compiled_parts.function_of(loss) is own
    found = compiled_parts.metrics_of_outputs(compiled_parts.compile_metrics(model))
    assert [(metric.name, weighted) for metric, weighted in found] == [("mae", False), ("mse", True)]
    assert compiled_parts.loss_tracker(model).name == "loss"


def test_arguments_of_keras_wrappers() -> None:
    assert compiled_parts.arguments_of(keras.losses.Huber(delta=2.0)) == {"delta": 2.0}
    assert compiled_parts.function_of(keras.metrics.MeanSquaredError()) is keras.losses.mean_squared_error
    assert compiled_parts.function_of("mse") == "mse"


@pytest.mark.parametrize(
    ("optimizer", "slots"),
    [
        (keras.optimizers.SGD(momentum=0.9), ["momentum"]),
        (keras.optimizers.Adam(amsgrad=True), ["momentum", "velocity", "velocity_hat"]),
        (keras.optimizers.RMSprop(momentum=0.9, centered=True), ["velocity", "momentum", "average_gradient"]),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_slots_of_an_optimizer(optimizer: Any, slots: list[str]) -> None:
    model = _sequential()
    optimizer.build(model.trainable_variables)
    for number, variable in enumerate(model.trainable_variables):
        assert compiled_parts.position_of(optimizer, variable) == number
        for slot in slots:
            assert compiled_parts.slot_variables(optimizer, slot)[number].shape == variable.shape
    assert not compiled_parts.decays(optimizer, model.trainable_variables[0])
    assert compiled_parts.iterations_variable(optimizer).shape == ()
    rate = compiled_parts.current_learning_rate(optimizer)
    assert float(keras.ops.convert_to_numpy(rate)) == pytest.approx(float(optimizer.learning_rate.numpy()))


def test_a_learning_rate_as_it_was_given() -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    assert compiled_parts.given_learning_rate(keras.optimizers.SGD(schedule)) is schedule


def test_where_the_values_of_variables_are() -> None:
    inside, outside = keras.Variable(1.0), keras.Variable(1.0)
    assert not variable_state.is_stateless()
    with keras.StatelessScope(state_mapping=[(inside, keras.ops.convert_to_tensor(2.0))]):
        assert variable_state.is_stateless()
        assert variable_state.is_argument_of_step(inside)
        assert not variable_state.is_argument_of_step(outside)
    assert not variable_state.is_symbolic()
    assert variable_state.has_state_in_variables(_sequential())
