"""Carrying out a plan up to step 0, in the order in which stock Keras does what can be noticed of it.

Everything that can be refused is refused here, before step 0, and nothing that a refusal leaves behind makes stock
Keras do anything else than it would have done.
"""

from __future__ import annotations

from typing import Any

from flatout.base.errors import Refusal, reason
from flatout.data.sources.description import ArraySource, BatchSource
from flatout.training.planning.call_facts import Source
from flatout.training.planning.engine_choice import choose_engine
from flatout.training.planning.plan import Plan

from .batch_feeds import stream_batches
from .prepared import Prepared, build_on_rows
from .row_feeds import hold_rows, order_of_rows


def prepare(model: Any, call: dict[str, Any], plan: Plan, source: Source | None, force: bool = False) -> Prepared:
    """Build the model, settle the engine, have the data ready and compile the step.

    Raises:
        Refusal: The step cannot be compiled, or (unless `force`) would gain nothing. The model may have been built, as
            stock Keras would have built it.
    """
    if isinstance(source, BatchSource):
        return stream_batches(model, call, plan, source)
    assert isinstance(source, ArraySource)
    order = order_of_rows(model, call, plan, source)
    if plan.facts.method != "predict":
        build_on_rows(model, plan, source, order)
    plan = choose_engine(plan, model, source, call.get("callbacks"))
    prepared = hold_rows(model, call, plan, source, order)
    if not prepared.program.pays and not force:
        prepared.feed.close()
        prepared.program.renew()
        raise Refusal(reason("no_gain"))
    return prepared
