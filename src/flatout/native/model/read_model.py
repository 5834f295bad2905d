"""From a Keras model to a `Network`, or to a named reason why the native engine cannot run it."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from flatout.base.errors import Refusal, reason
from flatout.seam.compiled_parts import compile_metrics, loss_tracker
from flatout.seam.first_reset import is_first_reset
from flatout.seam.layers import functional_class, functional_of, made_by, outputs_structure

from .network import Activation, Binding, Dense, Network
from .read_compiled import read_loss, read_metrics, read_optimizer
from .read_layers import ChainReading, names_of, read_layer

# Methods with which a user changes what a step does.
_STEP_METHODS = (
    *("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics", "call", "__call__"),
    *("reset_metrics", "get_metrics_result"),
)


def read(model: Any, task: str) -> tuple[Network, Binding]:
    """Read what a task needs of a built model.

    Raises:
        Refusal: With the reason why not.
    """
    check_model(model)
    shape, layers = _chain(model)
    chain = ChainReading(shape)
    features = chain.size
    for layer, chain.name in zip(layers, names_of(layers), strict=True):
        read_layer(layer, chain)
    specs, binding = chain.layers, chain.binding
    if len(chain.shape) != 1:
        raise Refusal(
            reason("native_model", f"its output has the shape {('batch', *chain.shape)}, not (batch, values)")
        )
    outputs = chain.shape[0]
    if task == "predict":
        return Network(features, tuple(specs), outputs, None, (), None), binding
    loss = read_loss(model, outputs, specs[-1] if specs else None, layers[-1] if layers else None)
    if loss.form == "z" and isinstance(specs[-1], Dense | Activation):
        specs[-1] = dataclasses.replace(specs[-1], curve=dataclasses.replace(specs[-1].curve, needs_z=True))
    metrics = read_metrics(model, outputs, loss)
    compiled = compile_metrics(model)
    binding.metrics.extend([loss_tracker(model), *(compiled.metrics if compiled is not None else ())])
    binding.log_names.extend(model.get_metrics_result())
    if len(binding.log_names) != len(binding.metrics):
        raise Refusal(reason("native_metric", "the metrics", "they have not one result each"))
    network = Network(features, tuple(specs), outputs, loss, tuple(metrics), None)
    trained = {id(variable) for variable in model.trainable_variables}
    ours = {id(binding.weights[weight.name]) for weight in network.trained}
    if trained != ours:
        raise Refusal(reason("native_model", "it has trainable variables outside its layers' own"))
    if task == "train":
        network = dataclasses.replace(network, optimizer=read_optimizer(model, network, binding))
    return network, binding


def check_model(model: Any) -> None:
    """Refuse models whose class or methods may compute anything."""
    if type(model) not in (keras.Sequential, functional_class()):
        raise Refusal(reason("native_model", f"it is a {type(model).__name__}, neither Sequential nor functional"))
    replaced = [name for name in _STEP_METHODS if name in vars(model) and not is_first_reset(vars(model)[name])]
    if replaced:
        raise Refusal(reason("native_model", f"its {replaced[0]} was replaced"))
    if keras.config.floatx() != "float32":
        raise Refusal(reason("native_model", f"floatx is {keras.config.floatx()}, not float32"))
    if not model.built:
        raise Refusal(reason("native_model", "it is not built yet"))


def _chain(model: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of a sample, and the layers from the first to the last."""
    functional = functional_of(model)
    if not isinstance(outputs_structure(model), keras.KerasTensor):
        raise Refusal(reason("native_model", "its output is no single tensor"))
    if len(functional.inputs) != 1:
        raise Refusal(reason("native_model", f"it has {len(functional.inputs)} inputs"))
    layers: list[Any] = []
    tensor = functional.outputs[0]
    while tensor is not functional.inputs[0]:
        layer, node = made_by(tensor)
        if len(node.input_tensors) != 1 or layer in layers:
            raise Refusal(reason("native_model", f"it is no chain of layers: {layer.name} joins or repeats"))
        # Keras notes `training=False` for each layer that takes it, and goes by the call at hand.
        if any(value is not None and value is not False for value in node.arguments.kwargs.values()):
            raise Refusal(reason("native_layer", layer.name, "it is called with arguments of its own"))
        layers.insert(0, layer)
        tensor = node.input_tensors[0]
    shape = tuple(functional.inputs[0].shape[1:])
    if any(size is None for size in shape):
        raise Refusal(reason("native_model", f"its input has the shape {('batch', *shape)}, which is not fixed"))
    return shape, layers
