"""Which engine it is: the name in a plan becomes an engine here, and nobody above or below asks again.

Most of the choice is made with the plan. Whether a fit is one that a single kernel trains faster can only be said of
a model that is built, and building draws random numbers: so `choose_engine` finishes the plan afterwards. In strict
mode whoever would get less than was asked for gets an error instead, before anything has run.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, cast

from flatout.base.errors import FallbackRefused, Reason
from flatout.base.options import current
from flatout.base.when_used import keras
from flatout.data.sources.description import ArraySource
from flatout.engines.contract import Engine
from flatout.engines.select import engine_for
from flatout.seam.layers import all_layers

from . import known_programs
from .callback_services import services_of
from .costs import one_kernel_saves
from .plan import Plan

_REMEDY = "Change the call, or run without --strict / FLATOUT_STRICT."
# Stock Keras was asked for, or nothing is to be run.
_WISHED = {"disabled", "asked_for_stock", "no_epochs"}


@functools.cache
def engine_named(name: str) -> Engine:
    """The engine of a plan: that of a Keras backend, or `"native"`, which stands upon the one in use."""
    if name != "native":
        return engine_for(name)
    from flatout.native.run.native_engine import NativeEngine

    return cast(Engine, NativeEngine(engine_for(keras.config.backend())))


def choose_engine(plan: Plan, model: Any, source: ArraySource, callbacks: Any) -> Plan:
    """The plan with the engine that shall run it, which may be a faster one than the backend's. The model is built."""
    facts = plan.facts
    if not plan.accelerated or facts.method != "fit" or current().engine != "auto" or not facts.is_for_one:
        return plan
    is_long = current().force
    if facts.costs is not None and facts.steps is not None and not is_long:
        is_on_disk = known_programs.is_known(facts.program, "native")
        is_long = one_kernel_saves(facts.backend, facts.steps, len(all_layers(model)), facts.costs, is_on_disk) > 0
    # Whoever wants each step's logs, or looks at the model between steps, makes launches short.
    if not is_long or services_of(callbacks) - {"none", "chunk"}:
        return plan
    from flatout.native.run.native_engine import one_kernel_is_better

    is_better = one_kernel_is_better(model, source.inputs, source.batch_size, plan.data == "streamed")
    return replace(plan, engine="native") if is_better else plan


def choose_instead(plan: Plan, why: Reason) -> Plan | None:
    """The plan for the backend's own engine after another one could not compile the step; None if it was that one."""
    if plan.engine == plan.facts.backend:
        return None
    if current().engine != plan.engine:
        return replace(plan, engine=plan.facts.backend)
    if current().strict:
        raise FallbackRefused(
            f"Strict mode: engine={plan.engine!r} was asked for, and cannot run this {plan.task} step. {why}"
        )
    return replace(plan, engine=plan.facts.backend, reasons=(*plan.reasons, why))


def refuse_stock(method: str, why: tuple[Reason, ...]) -> None:
    """Refuse to let stock Keras run a call in strict mode, unless the user wants it to."""
    if current().strict and not _WISHED & {reason.code for reason in why}:
        told = " ".join(map(str, why))
        raise FallbackRefused(f"Strict mode: `{method}` would run on stock Keras. {told} {_REMEDY}")


def refuse_obstacle(plan: Plan) -> None:
    """Refuse a plan for another engine than the one that was asked for."""
    if current().strict and plan.facts.native_obstacle is not None:
        raise FallbackRefused(f"Strict mode: engine='native' was asked for. {plan.facts.native_obstacle} {_REMEDY}")
