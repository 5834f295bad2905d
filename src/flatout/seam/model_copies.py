"""Copies of models to try things with, made and used without a trace in what Keras keeps for the whole process."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from flatout.base.when_used import keras, tf, torch

from .layers import functional_class
from .versions import GLOBAL_SEED_GENERATOR


def copied(model: Any) -> Any:
    """A model of the same layers, with new weights and compiled alike; raises if Keras cannot make one.

    Its optimizer and metrics are new. Functions that the user gave are the user's own.
    """
    is_graph = isinstance(model, (keras.Sequential, functional_class()))
    is_compiled, model.compiled = model.compiled, False  # Keras would compile the copy by names of functions.
    try:
        made = keras.models.clone_model(model) if is_graph else type(model).from_config(model.get_config())
    finally:
        model.compiled = is_compiled
    if type(made) is not type(model):
        raise TypeError(f"its copy is a {type(made).__name__}, not a {type(model).__name__}")
    if is_compiled:
        made.compile(**keras.tree.map_structure(_copied_part, model._compile_config.config))
    return made


def _copied_part(part: Any) -> Any:
    if isinstance(part, (keras.optimizers.Optimizer, keras.metrics.Metric)):
        return type(part).from_config(part.get_config())
    if isinstance(part, keras.losses.Loss):
        # It has no variables, and a user's seldom a configuration.
        made = object.__new__(type(part))
        vars(made).update(vars(part))
        return made
    return part


@contextlib.contextmanager
def keras_kept() -> Iterator[None]:
    """Have Keras' counters of names and its global seed generator afterwards as they are now."""
    from keras.src.backend.common import global_state

    state = vars(global_state.GLOBAL_STATE_TRACKER)
    before = {name: copy.copy(value) if isinstance(value, (dict, list)) else value for name, value in state.items()}
    try:
        yield
    finally:
        state.clear()
        state.update(before)


def global_seeds() -> dict[str, Any]:
    """What Keras draws seeds from where a layer or a call has none of its own."""
    from keras.src.backend.common import global_state

    return {name: value for name, value in vars(global_state.GLOBAL_STATE_TRACKER).items() if "seed" in name}


def put_global_seeds(seeds: dict[str, Any]) -> None:
    """Have Keras draw seeds from there."""
    from keras.src.backend.common import global_state

    state = vars(global_state.GLOBAL_STATE_TRACKER)
    for name in global_seeds():
        del state[name]
    state.update(seeds)


def seed_generators(seed: int) -> None:
    """As `keras.utils.set_random_seed`, which would import TensorFlow on any backend."""
    from keras.src.backend.common import global_state

    global_state.set_global_attribute("global_random_seed", seed)
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, None)
    random.seed(seed)
    np.random.seed(seed)
    if keras.config.backend() == "torch":
        torch.manual_seed(seed)
    elif keras.config.backend() == "tensorflow":
        tf.random.set_seed(seed)


@contextlib.contextmanager
def tensorflow_seed_kept() -> Iterator[None]:
    """Have TensorFlow's global seed, and how far its seeds of operations were drawn, afterwards as they are now."""
    from tensorflow.python.eager.context import context

    now = context()
    seed, drawn = now._seed, copy.deepcopy(getattr(now, "_rng", None))
    try:
        yield
    finally:
        now._seed, now._rng = seed, drawn
