"""Validation inside fit: its share of the data, prepared once, evaluated after the epochs that ask for it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from flatout.base.errors import Reason, Refusal
from flatout.base.options import Options, current
from flatout.seam import stock_methods as stock
from flatout.seam.epoch_iterators import iterator_class
from flatout.seam.trainers import trainer_module

from .preparing import Prepared, make_plan, prepare

if TYPE_CHECKING:
    from .ledger import Ledger

# The validation run of each model that is being fitted.
_prepared: weakref.WeakKeyDictionary[Any, Prepared] = weakref.WeakKeyDictionary()
# What tells its callbacks, and knows by now how long a step takes.
_ledgers: weakref.WeakKeyDictionary[Any, Ledger] = weakref.WeakKeyDictionary()
# Why stock Keras validated a model instead; read once, for the report of the fit.
_refused: weakref.WeakKeyDictionary[Any, tuple[Reason, ...]] = weakref.WeakKeyDictionary()


def split(call: dict[str, Any]) -> dict[str, Any]:
    """The arguments of fit with `validation_split` taken off the training data, as Keras takes it off."""
    from keras import tree
    from keras.src.trainers.data_adapters import array_slicing

    if not call["validation_split"] or call["validation_data"] is not None:
        return call
    arrays = (call["x"], call["y"], call["sample_weight"])
    # Keras would read rows of files to split them: it splits as many zeros, which take no memory.
    zeros = tree.map_structure(lambda leaf: np.broadcast_to(np.int8(0), len(leaf)) if _in_parts(leaf) else leaf, arrays)
    train, held_out = array_slicing.train_validation_split(zeros, validation_split=call["validation_split"])
    x, y, sample_weight = tree.map_structure(
        lambda leaf, part: leaf.part(0, len(part)) if _in_parts(leaf) else part, arrays, train
    )
    validation_data = tree.map_structure(
        lambda leaf, part: leaf.part(len(leaf) - len(part), len(leaf)) if _in_parts(leaf) else part, arrays, held_out
    )
    return {**call, "x": x, "y": y, "sample_weight": sample_weight, "validation_data": validation_data}


def _in_parts(leaf: Any) -> bool:
    """Whether an array lies in files and can be cut without reading them."""
    return hasattr(leaf, "part") and hasattr(leaf, "paths")


def run(
    model: Any, call: dict[str, Any], callbacks: Any, evaluate: Callable[..., Any], trains_natively: bool = False
) -> dict[str, Any]:
    """Evaluate a model on the validation data of a fit, by the user's own `evaluate` if there is one."""
    evaluation = _evaluation(call, callbacks)
    if getattr(model, "_eval_epoch_iterator", None) is None:
        _prepare(model, evaluation, "native" if trains_natively else current().engine)
    if model in _prepared and not _is_overridden(model):
        from .ledger import Ledger

        if model not in _ledgers:
            _ledgers[model] = Ledger(callbacks, model, "test", model.steps_per_execution)
        return evaluate(model, {**evaluation, "verbose": "auto"}, _prepared[model], _ledgers[model])
    return model.evaluate(**evaluation, _use_cached_eval_dataset=True)


def _evaluation(call: dict[str, Any], callbacks: Any) -> dict[str, Any]:
    """The arguments of evaluate that validate a fit."""
    from keras.src.trainers.data_adapters import data_adapter_utils

    x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(call["validation_data"])
    return {
        "x": x,
        "y": y,
        "sample_weight": sample_weight,
        "batch_size": call["validation_batch_size"] or call["batch_size"],
        "steps": call["validation_steps"],
        "callbacks": callbacks,
        "return_dict": True,
    }


def prepared_for(model: Any) -> Prepared | None:
    """What `evaluate(_use_cached_eval_dataset=True)` shall run, if an engine fits this model."""
    return _prepared.get(model)


def refusals(model: Any, call: dict[str, Any]) -> tuple[Reason, ...]:
    """Why the validation of a fit will run on stock Keras; empty if it will not."""
    if call["validation_data"] is None:
        return ()
    plan = make_plan("evaluate", model, _evaluation(call, None), Options(engine=current().engine, force=True))
    return () if plan.accelerated else plan.reasons


def forget(model: Any) -> None:
    _ledgers.pop(model, None)
    prepared = _prepared.pop(model, None)
    if prepared is not None:
        prepared.feed.close()


def take_reasons(model: Any) -> tuple[Reason, ...]:
    """Why the last fit of a model validated with stock Keras; empty if it did not."""
    return tuple(Reason(why.code, f"In validation: {why.message}") for why in _refused.pop(model, ()))


def _is_overridden(model: Any) -> bool:
    return "evaluate" in vars(model) or type(model).evaluate is not vars(stock.trainer_class())["evaluate"]


def _prepare(model: Any, evaluation: dict[str, Any], engine: str) -> None:
    """Make the data ready, for the engine or, where it cannot take them, for stock Keras."""
    # A user's `evaluate` ends in Keras' own unless that is replaced, and Keras' own wants its own iterator.
    if stock.are_replaced() or not _is_overridden(model):
        try:
            plan = make_plan("evaluate", model, evaluation, Options(engine=engine, force=True))
            if plan.accelerated:
                _prepared[model] = prepare("evaluate", model, evaluation, plan, force=True)
                model._eval_epoch_iterator = _prepared[model].feed.iterator
                return
            _refused[model] = plan.reasons
        except Refusal as refusal:
            _refused[model] = (refusal.reason,)
        except ValueError:
            # Data that Keras takes with a warning (no rows) or refuses in words of its own.
            pass
    import keras

    extra = {"distribute_strategy": model.distribute_strategy} if hasattr(model, "distribute_strategy") else {}
    model._eval_epoch_iterator = iterator_class(trainer_module(keras.config.backend()))(
        x=evaluation["x"],
        y=evaluation["y"],
        sample_weight=evaluation["sample_weight"],
        batch_size=evaluation["batch_size"],
        steps_per_execution=model.steps_per_execution,
        steps_per_epoch=evaluation["steps"],
        shuffle=False,
        **extra,
    )
