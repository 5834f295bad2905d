"""Strict mode: whoever would get less than was asked for gets an error instead, before anything has run."""

from __future__ import annotations

from flatout.base.errors import FallbackRefused, Reason
from flatout.base.options import current

from .plan import Plan

_REMEDY = "Change the call, or run without --strict / FLATOUT_STRICT."
# Stock Keras was asked for, or nothing is to be run.
_WISHED = {"disabled", "asked_for_stock", "no_epochs"}


def refuse_stock(method: str, why: tuple[Reason, ...]) -> None:
    """Refuse to let stock Keras run a call in strict mode, unless the user wants it to."""
    if current().strict and not _WISHED & {reason.code for reason in why}:
        told = " ".join(map(str, why))
        raise FallbackRefused(f"Strict mode: `{method}` would run on stock Keras. {told} {_REMEDY}")


def refuse_obstacle(plan: Plan) -> None:
    """Refuse a plan for another engine than the one that was asked for."""
    if current().strict and plan.facts.native_obstacle is not None:
        raise FallbackRefused(f"Strict mode: engine='native' was asked for. {plan.facts.native_obstacle} {_REMEDY}")
