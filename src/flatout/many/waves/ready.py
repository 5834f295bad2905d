"""A candidate at step 0: its model built with its own seed, its steps compiled for rows that all candidates share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flatout.base.errors import Refusal
from flatout.base.options import current
from flatout.base.when_used import keras
from flatout.data.order.row_order import ResidentFeed
from flatout.data.sources.description import ArraySource
from flatout.engines.select import engine_for
from flatout.many.candidate import Candidate
from flatout.many.shared_call import SharedCall
from flatout.training.planning.call_facts import plan_call
from flatout.training.preparing.prepare import prepare
from flatout.training.preparing.prepared import Prepared
from flatout.training.validation import Validation


@dataclass(eq=False)
class Ready:
    """A candidate at step 0.

    Attributes:
        candidate: It; its model is built.
        call: The arguments of its `fit`.
        prepared: Its steps and its rows; None if its `fit` can share nothing.
        validation: Its validation.
    """

    candidate: Candidate
    call: dict[str, Any]
    prepared: Prepared | None
    validation: Validation

    @property
    def feed(self) -> ResidentFeed:
        assert self.prepared is not None
        assert isinstance(self.prepared.feed, ResidentFeed)
        return self.prepared.feed


def is_built_alone(candidate: Candidate, shared: SharedCall) -> bool:
    """Build the model of a candidate, with its generators in place; whether it shares no variables with others."""
    candidate.model = shared.build(candidate.point)
    return shared.ownership.is_alone(candidate.model)


def made_ready(candidate: Candidate, shared: SharedCall) -> Ready:
    """Have a candidate ready for its first step, with its generators in place; none it shares variables with runs."""
    model = candidate.model
    call = shared.of(candidate)
    validation = Validation(model, call, shared.validation_rows(candidate, call))
    prepared = None
    # Under a distribution of the user's each goes by itself.
    if isinstance(shared.source, ArraySource) and keras.distribution.distribution() is None:
        force = current().force or _gains_by_company()
        plan, source = plan_call("fit", model, call, replace(current(), force=force), shared.source)
        if plan.accelerated and plan.data == "resident":
            try:
                prepared = prepare(model, call, plan, source, force=force, held=shared.training_rows(candidate))
            except Refusal:
                # Stock Keras runs it, and says why.
                prepared = None
    shared.ownership.note(model)
    return Ready(candidate, call, prepared, validation)


def _gains_by_company() -> bool:
    """Whether many models run otherwise than one after the other, and so gain where one alone would not."""
    backend = keras.config.backend()
    return bool(backend == "jax" or engine_for(backend).reuses_memory)
