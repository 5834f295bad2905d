"""The conductor: fit, evaluate and predict, written once for every backend.

    source ──► plan ──► feed ──► engine ──► ledger ──► History

Each function below follows Keras' own method of the same name line by line; what differs is that many steps run in
one dispatch (`passes.py`) on data that were placed on the device before step 0 (`prepare.py`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import validation
from .arguments import bound, resolved
from .data.files import unmapped
from .data.output_paths import OutputPaths
from .data.plan import Plan
from .engines import stock
from .errors import FallbackRefused, Reason, Refusal
from .losses.in_fit import about_losses
from .losses.tables.key_checks import check_inputs
from .options import current, options
from .prepare import Prepared, make_plan, prepare
from .report import RunReport, record

if TYPE_CHECKING:
    from .ledger import Ledger


def fit(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    engine: Any = None,
    data: Any = None,
    precision: Any = None,
    **arguments: Any,
) -> Any:
    """Train a model: `model.fit` with the same arguments and the same results, on the device.

    Args:
        model: A compiled Keras model.
        x: As for `keras.Model.fit`.
        y: As for `keras.Model.fit`.
        engine: `"auto"`, the name of the backend, `"native"` for CUDA kernels (dense models; docs/native.md), or
            `"stock"` for Keras' own loop.
        data: `"auto"`, `"resident"`, `"streamed"` or `"direct"`; see docs/data.md.
        precision: `"exact"` (the default) or `"fast"`, which may round in another order than Keras does.
        **arguments: Every other argument of `keras.Model.fit`.

    Returns:
        A `keras.callbacks.History`.

    Example:
        >>> import flatout, keras, numpy as np
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> history = flatout.fit(model, np.ones((64, 4)), np.ones(64), epochs=2, verbose=0)
        >>> len(history.history["loss"])
        2
    """
    with options(engine=engine, data=data, precision=precision):
        return _call("fit", model, (x, y), arguments)


def evaluate(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    engine: Any = None,
    data: Any = None,
    precision: Any = None,
    **arguments: Any,
) -> Any:
    """Evaluate a model: `model.evaluate` with the same arguments and the same results, on the device.

    Example:
        >>> import flatout, keras, numpy as np
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> loss = flatout.evaluate(model, np.ones((64, 4)), np.ones(64), verbose=0)
    """
    with options(engine=engine, data=data, precision=precision):
        return _call("evaluate", model, (x, y), arguments)


def predict(
    model: Any,
    x: Any,
    *,
    out: Any = None,
    engine: Any = None,
    data: Any = None,
    precision: Any = None,
    **arguments: Any,
) -> Any:
    """Predict with a model: `model.predict` with the same arguments and the same results, on the device.

    With `out` neither the input nor the predictions need fit into memory. The rows are streamed from `x`, whatever
    `data` says, and the predictions are written to a temporary file beside `out`, which gets its name when all are
    there. After a crash or a Ctrl-C the same call goes on where the last one stopped, and the file ends up with the
    same bytes: provided that the model, its weights, `x` and the versions are the same, and that `x` has rows with
    numbers (arrays and files, not generators). If not, it starts anew and a warning says why. Callbacks hear of the
    steps that this call takes.

    Args:
        model: A Keras model.
        x: As for `keras.Model.predict`; also paths of `.npy` files, patterns such as `"x-*.npy"`, and structures of
            them.
        out: Where to write the predictions: a path that ends in `.npy`. For a model with several outputs a folder,
            which gets a file for each, named after its key or position, or a structure of paths like that of the
            outputs. A finished file in its place is overwritten.
        engine: As for `fit`.
        data: As for `fit`.
        precision: As for `fit`.
        **arguments: Every other argument of `keras.Model.predict`.

    Returns:
        The predictions as NumPy arrays; with `out` as read-only memory maps of the files.

    Example:
        >>> import flatout, keras, numpy as np
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> flatout.predict(model, np.ones((64, 4)), verbose=0).shape
        (64, 1)

        From disk to disk:

        >>> import os, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> features, scores = os.path.join(folder, "features.npy"), os.path.join(folder, "scores.npy")
        >>> np.save(features, np.ones((1000, 4), "float32"))
        >>> predictions = flatout.predict(model, features, out=scores, verbose=0)
        >>> type(predictions).__name__, predictions.shape, np.load(scores).shape
        ('memmap', (1000, 1), (1000, 1))
    """
    with options(engine=engine, data=data, precision=precision):
        if out is None:
            return _call("predict", model, (x,), arguments)
        return _predict_to_file(model, x, out, arguments)


def plan(model: Any, x: Any = None, y: Any = None, *, method: str = "fit", **arguments: Any) -> Plan:
    """Say what `fit`, `evaluate` or `predict` would do with these arguments, and why; nothing is run.

    Example:
        >>> import flatout, keras, numpy as np
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> flatout.plan(model, np.zeros((64_000, 4)), np.zeros(64_000)).data
        'resident'
    """
    wishes = {name: arguments.pop(name, None) for name in ("engine", "data", "precision")}
    call = bound(method, (x, y) if method != "predict" else (x,), arguments)
    with options(**wishes):
        return make_plan(method, model, resolved(method, model, call), current())


def _is_overridden(method: str, model: Any) -> bool:
    return method in vars(model) or getattr(type(model), method) is not vars(stock.trainer_class())[method]


def _call(method: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a method, by way of the user's own override of it if there is one, whose `super()` call then reaches us."""
    if not _is_overridden(method, model):
        return conduct(method, model, args, kwargs)
    if stock.are_replaced():
        return getattr(model, method)(*args, **kwargs)

    def replacement(name: str) -> Any:
        return lambda self, *args, **kwargs: conduct(name, self, args, kwargs)

    stock.replace_methods({name: replacement(name) for name in stock.METHODS})
    try:
        return getattr(model, method)(*args, **kwargs)
    finally:
        stock.restore_methods()


def conduct(method: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one of Keras' methods: with an engine where that gives the same results sooner, else as Keras does."""
    if method == "evaluate" and kwargs.get("_use_cached_eval_dataset"):
        # Validation inside fit, by way of an `evaluate` that the user overrode, or of stock Keras' fit.
        cached = validation.prepared_for(model)
        if cached is not None:
            call = bound(method, args, {k: v for k, v in kwargs.items() if k != "_use_cached_eval_dataset"})
            return _evaluate(model, call, cached)[0]
        return stock.original(method)(model, *args, **kwargs)
    started = time.perf_counter()
    call = bound(method, args, kwargs)
    arrays = resolved(method, model, call)
    if arrays is not call:
        call, args, kwargs = arrays, (), arrays
    run = {"fit": _fit, "evaluate": _evaluate, "predict": _predict}[method]
    try:
        if method == "fit":
            call = validation.split(call)
        decision = make_plan(method, model, call, current())
        if decision.accelerated and decision.facts.native_obstacle is not None and current().strict:
            raise FallbackRefused(
                f"Strict mode: engine='native' was asked for. {decision.facts.native_obstacle} "
                "Change the call, or run without --strict / FLATOUT_STRICT."
            )
        if not decision.accelerated:
            return _stock(method, model, args, kwargs, decision.reasons, started)
        if method == "fit" and current().strict and (refusals := validation.refusals(model, call)):
            return _stock(method, model, args, kwargs, refusals, started)
        if method != "predict":
            model._assert_compile_called(method)
        prepared = prepare(method, model, call, decision, force=current().force)
    except Refusal as refusal:
        if refusal.x is not None:
            args, kwargs = (), {**call, "x": refusal.x}
        return _stock(method, model, args, kwargs, (refusal.reason,), started)
    try:
        check_inputs(model, call["x"])
        result, steps = run(model, call, prepared)
    finally:
        prepared.feed.close()
    seconds = time.perf_counter() - started
    why = (*prepared.plan.reasons, *prepared.program.reasons)
    if method == "fit":
        why = (*why, *validation.take_reasons(model), *about_losses(model))
    loads = (*prepared.loads, *prepared.feed.loads)
    record(RunReport(method, True, prepared.program.engine, prepared.feed.placement, steps, seconds, why, loads))
    return result


def _stock(method: str, model: Any, args: Any, kwargs: Any, why: tuple[Reason, ...], started: float) -> Any:
    _refuse_if_strict(method, why)
    result = stock.original(method)(model, *args, **kwargs)
    why = (*why, *about_losses(model)) if method == "fit" else why
    record(RunReport(method, False, "stock", "host", 0, time.perf_counter() - started, why))
    return result


def _refuse_if_strict(method: str, why: tuple[Reason, ...]) -> None:
    wished = {"disabled", "asked_for_stock"}
    if current().strict and not wished & {reason.code for reason in why}:
        raise FallbackRefused(
            f"Strict mode: `{method}` would run on stock Keras. "
            + " ".join(map(str, why))
            + " Change the call, or run without --strict / FLATOUT_STRICT."
        )


def _callback_list(model: Any, call: dict[str, Any], steps: int | None, epochs: int = 1, **extra: Any) -> Any:
    import keras

    callbacks, verbose = call["callbacks"], call["verbose"]
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return keras.callbacks.CallbackList(
        callbacks, add_progbar=verbose != 0, verbose=verbose, epochs=epochs, steps=steps, model=model, **extra
    )


def _has_users_callbacks(callbacks: Any) -> bool:
    """Whether code of the user runs between epochs; it may have changed what the model's Python reads."""
    import keras

    return any(
        not type(callback).__module__.startswith("keras.") or isinstance(callback, keras.callbacks.LambdaCallback)
        for callback in callbacks.callbacks
    )


def _fit(model: Any, call: dict[str, Any], prepared: Prepared) -> tuple[Any, int]:
    import keras

    from .ledger import Ledger
    from .passes import run_pass

    engine, feed = prepared.engine, prepared.feed
    epochs = call["epochs"]
    max_epochs = keras.config.max_epochs()
    if max_epochs and max_epochs < epochs:
        warnings.warn(f"Limiting epochs to {max_epochs}", stacklevel=4)
        epochs = max_epochs
    model._eval_epoch_iterator = None
    callbacks = _callback_list(model, call, feed.steps, epochs, add_history=True)
    model.make_train_function()
    model.stop_training = False
    training_logs: dict[str, Any] | None = None
    training_finished = False
    steps = 0
    feed.reset()
    validation.take_reasons(model)
    watched = _has_users_callbacks(callbacks)
    callbacks.on_train_begin()
    try:
        mark = prepared.engine.mark if feed.placement == "streamed" else None
        ledger = Ledger(callbacks, model, "train", model.steps_per_execution, mark)
        for epoch in range(model._initial_epoch or call["initial_epoch"], epochs):
            engine.reset_metrics(model)
            callbacks.on_epoch_begin(epoch)
            engine.begin_epoch(model, "train")
            if watched:
                prepared.program.renew(is_first=steps == 0)
            done = run_pass(model, prepared, ledger)
            steps += done.steps
            prepared.program.end_pass()
            epoch_logs = engine.epoch_logs(model, done.logs)
            engine.end_epoch(model, "train")
            if call["validation_data"] is not None and model._should_eval(epoch, call["validation_freq"]):
                val_logs = validation.run(model, call, callbacks, _evaluate, prepared.program.engine == "native")
                epoch_logs.update({f"val_{name}": value for name, value in val_logs.items()})
            callbacks.on_epoch_end(epoch, epoch_logs)
            training_logs = epoch_logs
            if model.stop_training or feed.is_exhausted:
                break
        training_finished = True
    finally:
        prepared.program.end_pass()
        finalizes = isinstance(model.optimizer, keras.optimizers.Optimizer) and epochs > 0
        if finalizes and (training_finished or engine.finalizes_after_errors):
            model.optimizer.finalize_variable_values(model.trainable_weights)
        validation.forget(model)
        if getattr(model, "_eval_epoch_iterator", None) is not None:
            del model._eval_epoch_iterator
        if training_finished:
            callbacks.on_train_end(logs=training_logs)
        engine.end_run(model)
    return model.history, steps


def _evaluate(model: Any, call: dict[str, Any], prepared: Prepared, ledger: Ledger | None = None) -> tuple[Any, int]:
    from keras.src.utils.python_utils import pythonify_logs

    from .ledger import Ledger
    from .passes import run_pass

    engine = prepared.engine
    prepared.feed.reset()
    callbacks = _callback_list(model, call, prepared.feed.steps)
    engine.begin_epoch(model, "test")
    model.make_test_function()
    model.stop_evaluating = False
    callbacks.on_test_begin()
    engine.reset_metrics(model)
    try:
        ledger = ledger or Ledger(callbacks, model, "test", model.steps_per_execution)
        done = run_pass(model, prepared, ledger)
    finally:
        prepared.program.end_pass()
    logs = pythonify_logs(engine.epoch_logs(model, done.logs))
    callbacks.on_test_end(logs)
    engine.end_run(model)
    return (logs if call["return_dict"] else model._flatten_metrics_in_order(logs)), done.steps


def _predict(model: Any, call: dict[str, Any], prepared: Prepared) -> tuple[Any, int]:
    from keras import tree

    done = _predict_pass(model, call, prepared)
    outputs = tree.map_structure(lambda *batches: np.concatenate(batches), *done.outputs)
    return outputs, done.steps


def _predict_to_file(model: Any, x: Any, out: Any, arguments: dict[str, Any]) -> Any:
    from keras import tree

    from .to_file import appending, open_files, prepare_to_file

    if _is_overridden("predict", model):
        raise ValueError(
            f"`out` cannot be used with {type(model).__name__}, which has a `predict` of its own. Expected a model "
            "with Keras' `predict`; what is special about this one can go into `predict_step`."
        )
    started = time.perf_counter()
    call = resolved("predict", model, bound("predict", (x,), arguments))
    call = {**call, "x": tree.map_structure(unmapped, call["x"])}
    paths = OutputPaths(out, call["x"])
    with options(data="streamed") as wishes:
        prepared = prepare_to_file(model, call, wishes)
        try:
            if not prepared.plan.accelerated:
                _refuse_if_strict("predict", prepared.plan.reasons)
            with open_files(model, call, prepared, paths, wishes) as files:
                if files.started_anew is not None:
                    message = f"An interrupted prediction to {paths} is started anew: {files.started_anew}."
                    warnings.warn(message, stacklevel=3)
                first_step = files.steps
                done = _predict_pass(model, call, prepared, first_step, appending(model, prepared, files))
        finally:
            prepared.feed.close()
    seconds, plan, steps = time.perf_counter() - started, prepared.plan, done.steps - first_step
    why = (*plan.reasons, *prepared.program.reasons)
    feed = prepared.feed
    record(RunReport("predict", plan.accelerated, plan.engine, feed.placement, steps, seconds, why, tuple(feed.loads)))
    return files.result()


def _predict_pass(
    model: Any,
    call: dict[str, Any],
    prepared: Prepared,
    first_step: int = 0,
    take_outputs: Callable[[list[Any]], None] | None = None,
) -> Any:
    from .ledger import Ledger
    from .passes import run_pass

    engine = prepared.engine
    callbacks = _callback_list(model, call, prepared.feed.steps)
    engine.begin_epoch(model, "predict")
    model.make_predict_function()
    model.stop_predicting = False
    callbacks.on_predict_begin()
    try:
        ledger = Ledger(callbacks, model, "predict", model.steps_per_execution)
        done = run_pass(model, prepared, ledger, first_step, take_outputs)
    finally:
        prepared.program.end_pass()
    callbacks.on_predict_end()
    engine.end_run(model)
    return done
