"""The conductor: fit, evaluate and predict, written once for every backend.

    source ──► plan ──► feed ──► engine ──► ledger ──► History

A call is planned and prepared here, or handed to stock Keras with the reasons; `loops.py` runs what was prepared.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

from flatout.base.errors import FallbackRefused, Reason, Refusal
from flatout.base.options import current, options
from flatout.base.report import RunReport, record
from flatout.data.files.npy_files import unmapped
from flatout.data.output.output_paths import OutputPaths
from flatout.seam import stock_methods as stock
from flatout.tables.loss.key_checks import check_inputs
from flatout.training import validation
from flatout.training.arguments import bound, resolved
from flatout.training.loops import evaluate_pass, fit_epochs, predict_all, predict_pass
from flatout.training.losses_of_model import about_losses
from flatout.training.planning import Plan
from flatout.training.preparing import Prepared, make_plan, prepare


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
    with stock.replaced_in_this_call(conduct):
        return getattr(model, method)(*args, **kwargs)


def conduct(method: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one of Keras' methods: with an engine where that gives the same results sooner, else as Keras does."""
    if method == "evaluate" and kwargs.get("_use_cached_eval_dataset"):
        # Validation inside fit, by way of an `evaluate` that the user overrode, or of stock Keras' fit.
        cached = validation.prepared_for(model)
        if cached is not None:
            call = bound(method, args, {k: v for k, v in kwargs.items() if k != "_use_cached_eval_dataset"})
            return evaluate_pass(model, call, cached)
        return stock.original(method)(model, *args, **kwargs)
    started = time.perf_counter()
    call = bound(method, args, kwargs)
    arrays = resolved(method, model, call)
    if arrays is not call:
        call, args, kwargs = arrays, (), arrays
    run = {"fit": fit_epochs, "evaluate": evaluate_pass, "predict": predict_all}[method]
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
        result = run(model, call, prepared)
    except BaseException as error:
        if prepared.steps:
            _record(method, model, prepared, started, type(error).__name__)
        raise
    finally:
        prepared.feed.close()
    _record(method, model, prepared, started)
    return result


def _record(method: str, model: Any, prepared: Prepared, started: float, ended_by: str = "") -> None:
    seconds = time.perf_counter() - started
    why = (*prepared.plan.reasons, *prepared.program.reasons)
    if method == "fit":
        why = (*why, *validation.take_reasons(model), *about_losses(model))
    engine, placement = prepared.program.engine, prepared.feed.placement
    loads = (*prepared.loads, *prepared.feed.loads)
    record(RunReport(method, True, engine, placement, prepared.steps, seconds, why, loads, ended_by))


def _stock(method: str, model: Any, args: Any, kwargs: Any, why: tuple[Reason, ...], started: float) -> Any:
    _refuse_if_strict(method, why)
    try:
        result = stock.original(method)(model, *args, **kwargs)
    except KeyboardInterrupt as error:
        # Whoever stops a long run asks why it took long; an error is the program's own affair.
        _record_stock(method, model, why, started, type(error).__name__)
        raise
    _record_stock(method, model, why, started)
    return result


def _record_stock(method: str, model: Any, why: tuple[Reason, ...], started: float, ended_by: str = "") -> None:
    why = (*why, *about_losses(model)) if method == "fit" else why
    record(RunReport(method, False, "stock", "host", 0, time.perf_counter() - started, why, ended_by=ended_by))


def _refuse_if_strict(method: str, why: tuple[Reason, ...]) -> None:
    wished = {"disabled", "asked_for_stock", "no_epochs"}
    if current().strict and not wished & {reason.code for reason in why}:
        raise FallbackRefused(
            f"Strict mode: `{method}` would run on stock Keras. "
            + " ".join(map(str, why))
            + " Change the call, or run without --strict / FLATOUT_STRICT."
        )


def _predict_to_file(model: Any, x: Any, out: Any, arguments: dict[str, Any]) -> Any:
    from keras import tree

    from flatout.training.predict_to_files import appending, open_files, prepare_to_file

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
                done = predict_pass(model, call, prepared, first_step, appending(model, prepared, files))
        finally:
            prepared.feed.close()
    seconds, plan, steps = time.perf_counter() - started, prepared.plan, done.steps - first_step
    why = (*plan.reasons, *prepared.program.reasons)
    feed = prepared.feed
    record(RunReport("predict", plan.accelerated, plan.engine, feed.placement, steps, seconds, why, tuple(feed.loads)))
    return files.result()
