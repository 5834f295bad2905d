"""From a call to something that can run: look at the data, plan, build the model, place the rows, compile the step.

Everything that can be refused is refused here, before step 0, and nothing that a refusal leaves behind makes stock
Keras do anything else than it would have done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .data.order import Order
from .data.plan import Facts, Plan, as_size, decide, obstacles_of_model
from .data.source import ArraySource, describe
from .engines.base import Engine, Program, Task
from .engines.select import engine_for, trainer_module
from .errors import InvalidOption, Refusal, reason
from .options import Options

_TASKS: dict[str, Task] = {"fit": "train", "evaluate": "test", "predict": "predict"}


@dataclass(frozen=True)
class Prepared:
    """A compiled step, its data on the device and the order in which it takes them."""

    plan: Plan
    engine: Engine
    program: Program
    order: Order
    source: ArraySource


def describe_call(method: str, call: dict[str, Any]) -> ArraySource:
    """The training, test or prediction data of a call, `validation_split` already taken off."""
    return describe(
        call.get("x"),
        call.get("y"),
        call.get("sample_weight"),
        batch_size=call.get("batch_size"),
        steps=_steps(method, call),
        class_weight=call.get("class_weight"),
    )


def _steps(method: str, call: dict[str, Any]) -> int | None:
    """Steps of an epoch if the user limits them, by argument or by `keras.config.set_max_steps_per_epoch`."""
    import keras

    steps = call.get("steps_per_epoch" if method == "fit" else "steps")
    if steps is not None and steps < 0:
        raise Refusal(reason("steps", steps))
    most = keras.config.max_steps_per_epoch()
    return min(most, steps or most) if most else steps


def make_plan(method: str, model: Any, call: dict[str, Any], options: Options) -> Plan:
    """Plan a call without changing anything; `call` holds the arguments by name."""
    import keras

    backend = keras.config.backend()
    if options.engine not in ("auto", "stock", backend):
        raise InvalidOption(
            f"Invalid value for option `engine`. Received: engine={options.engine!r} on the Keras backend "
            f"{backend!r}. Expected 'auto', 'stock' or {backend!r}."
        )
    facts = Facts(method, backend, keras.__version__)
    early = decide(facts, Options(enabled=options.enabled, engine=options.engine, force=True))
    if early.reasons:
        return early
    obstacles = obstacles_of_model(model, method, backend)
    try:
        source = describe_call(method, call)
    except Refusal as refusal:
        return decide(Facts(method, backend, keras.__version__, obstacles=(*obstacles, refusal.reason)), options)
    if method == "predict" and not all(layer.built for layer in model._flatten_layers()):
        obstacles.append(reason("unbuilt"))
    epochs = max(0, call.get("epochs", 1) - call.get("initial_epoch", 0))
    per_epoch = _steps(method, call) or source.batches
    facts = Facts(
        method,
        backend,
        keras.__version__,
        rows=source.rows,
        batch_size=source.batch_size,
        steps=epochs * per_epoch,
        nbytes=source.nbytes,
        free_bytes=None if obstacles else engine_for(backend).free_memory(),
        obstacles=tuple(obstacles),
    )
    return decide(facts, options)


def prepare(method: str, model: Any, call: dict[str, Any], plan: Plan, force: bool = False) -> Prepared:
    """Carry out a plan up to step 0.

    Raises:
        Refusal: The step cannot be compiled, or (unless `force`) would gain nothing. The model may have been built, as
            stock Keras would have built it.
    """
    engine = engine_for(plan.engine)
    source = describe_call(method, call)
    order = Order(
        source.rows,
        source.batch_size,
        shuffle=call.get("shuffle", False),
        steps_per_epoch=call.get("steps_per_epoch" if method == "fit" else "steps"),
        steps_per_execution=getattr(model, "steps_per_execution", 1),
        trainer_module=trainer_module(plan.engine),
        strategy=getattr(model, "distribute_strategy", None),
    )
    if method != "predict":
        _build(model, engine, source, order)
    data = _place(engine, source)
    program = engine.prepare(model, _TASKS[method], data, source.rows, source.batch_size)
    group = getattr(model, "steps_per_execution", 1)
    if program.longest is not None:
        program.longest = max(group, program.longest // group * group)
    if not program.pays and not force:
        raise Refusal(reason("no_gain"))
    return Prepared(plan, engine, program, order, source)


def _place(engine: Engine, source: ArraySource) -> Any:
    try:
        return engine.place(source.inputs)
    except Exception as error:
        # Each backend has its own error for this; all say it in one of these words.
        text = f"{type(error).__name__}: {error}".lower()
        if not any(
            words in text for words in ("resource_exhausted", "out of memory", "resourceexhausted", "memoryerror")
        ):
            raise
        raise Refusal(reason("memory", as_size(source.nbytes), "less")) from error


def _build(model: Any, engine: Engine, source: ArraySource, order: Order) -> None:
    """Build what is not built yet, drawing the random numbers that stock Keras draws for it."""
    unbuilt = (
        not all(layer.built for layer in model._flatten_layers())
        or (model._compile_metrics is not None and not model._compile_metrics.built)
        or (model._compile_loss is not None and not model._compile_loss.built)
    )
    if unbuilt and engine.peeks_to_build:
        order.peek()
    batch = engine.place(source.head(source.batch_size)) if unbuilt else ()
    try:
        model._symbolic_build(data_batch=batch)
    except Exception as error:
        if engine.peeks_to_build:
            # Stock Keras builds in the same way here: the error is the user's to see.
            raise
        raise Refusal(reason("untraceable", "the model", str(error).partition("\n")[0])) from error
