"""The conductor: fit, evaluate and predict, written once for every backend.

    arguments ──► plan ──► prepare ──► run ──► report

A call is planned (`training/planning/`) and prepared up to step 0 (`training/preparing/`), or handed to stock Keras
with the reasons; then it runs, from the first callback to the last, and is reported.
"""

from __future__ import annotations

import time
from typing import Any

from flatout.base.errors import Refusal
from flatout.base.group import joined
from flatout.base.options import current, options
from flatout.cluster.choice import fit_in_group, group_wanted
from flatout.seam import stock_methods as stock
from flatout.seam.epoch_iterators import KEPT_VALIDATION
from flatout.seam.trainers import check_compiled
from flatout.training.arguments import bound, resolved, split_off_validation
from flatout.training.planning.call_facts import plan_call
from flatout.training.planning.engine_choice import refuse_obstacle, refuse_stock
from flatout.training.planning.plan import Plan
from flatout.training.predict_to_files import predict_to_files
from flatout.training.preparing.prepare import prepare
from flatout.training.running import run, run_stock
from flatout.training.self_check import plan_checked
from flatout.training.validation import Validation, running_validation


def fit(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    engine: Any = None,
    data: Any = None,
    precision: Any = None,
    workers: Any = None,
    restarts: Any = None,
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
        workers: How many devices, or processes where there are fewer, each batch is divided among; or `"auto"` for all
            devices there are (docs/scale.md). `batch_size` stays that of the whole batch.
        restarts: How often processes begin again, from the last checkpoint of Keras' own callbacks, if one is lost.
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
    with options(engine=engine, data=data, precision=precision, workers=workers, restarts=restarts):
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
    same bytes: provided that the model, its weights, `x` and the versions are the same, that some rows which are
    computed again come out as they were, and that `x` has rows with numbers (arrays and files, not generators). If not,
    it starts anew and a warning says why. Callbacks hear of the steps that this call takes.

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
        return predict_to_files(model, x, out, arguments, conduct)


def plan(model: Any, x: Any = None, y: Any = None, *, method: str = "fit", **arguments: Any) -> Plan:
    """Say what `fit`, `evaluate` or `predict` would do with these arguments, and why; nothing is run.

    Example:
        >>> import flatout, keras, numpy as np
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> flatout.plan(model, np.zeros((64_000, 4)), np.zeros(64_000)).data
        'resident'
    """
    wishes = {name: arguments.pop(name, None) for name in ("engine", "data", "precision", "workers")}
    call = bound(method, (x, y) if method != "predict" else (x,), arguments)
    with options(**wishes):
        return plan_call(method, model, resolved(method, model, call), current())[0]


def _call(method: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a method, by way of the user's own override of it if there is one, whose `super()` call then reaches us."""
    if not stock.is_overridden(method, model):
        return conduct(method, model, args, kwargs)
    if stock.are_replaced():
        return getattr(model, method)(*args, **kwargs)
    with stock.replaced_in_this_call(conduct):
        return getattr(model, method)(*args, **kwargs)


def conduct(method: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one of Keras' methods: with an engine where that gives the same results sooner, else as Keras does."""
    if method == "evaluate" and kwargs.get(KEPT_VALIDATION):
        return _validate(model, args, kwargs)
    group = joined()
    if group is not None and group.is_alone:
        # What others take part in was compiled for all of them.
        with stock.functions_apart(model):
            return _conduct(method, model, args, kwargs)
    return _conduct(method, model, args, kwargs)


def _conduct(method: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    started = time.perf_counter()
    call = bound(method, args, kwargs)
    arrays = resolved(method, model, call)
    if arrays is not call:
        call, args, kwargs = arrays, (), arrays
    if method == "fit" and (wanted := group_wanted(current())):
        return fit_in_group(model, call, wanted, conduct)
    try:
        if method == "fit":
            call = split_off_validation(call)
        plan, source = plan_checked(method, model, call, current(), conduct)
        if not plan.accelerated:
            return run_stock(method, model, args, kwargs, plan.reasons, started, plan.facts)
        refuse_obstacle(plan)
        validation = Validation(model, call)
        if current().strict and (why := validation.refusals()):
            refuse_stock(method, why)
        if method != "predict":
            check_compiled(model, method)
        prepared = prepare(model, call, plan, source, force=current().force)
    except Refusal as refusal:
        if refusal.x is not None:
            args, kwargs = (), {**call, "x": refusal.x}
        return run_stock(method, model, args, kwargs, (refusal.reason,), started)
    return run(model, call, prepared, validation, started)


def _validate(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Validation inside fit, by way of an `evaluate` that the user overrode, or of stock Keras' fit."""
    validation = running_validation(model)
    if validation is None:
        return stock.original("evaluate")(model, *args, **kwargs)
    given = {name: value for name, value in kwargs.items() if name != KEPT_VALIDATION}
    return validation.evaluate(bound("evaluate", args, given))
