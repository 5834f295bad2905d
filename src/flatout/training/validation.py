"""Validation inside fit: its data are made ready once, when the first epoch asks for them, and go with the fit."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Generator
from typing import Any

from flatout.base.errors import Reason, Refusal, reason
from flatout.base.options import Options, current
from flatout.base.when_used import keras
from flatout.data.sources.description import ArraySource
from flatout.engines.contract import StepProgram
from flatout.seam import stock_methods as stock
from flatout.seam.epoch_iterators import KEPT_VALIDATION, keep_validation, kept_validation, validation_iterator
from flatout.seam.trainers import validates_after

from .ledger import Ledger
from .passes import evaluate_pieces, in_one_go
from .planning.call_facts import Source, plan_call
from .planning.plan import Plan
from .preparing.prepare import prepare
from .preparing.prepared import HeldRows, Prepared

# By which the iterator that Keras keeps for a running fit leads to the validation of that fit.
_LINK = "_flatout_validation"


class Validation:
    """The validation of one fit, `validation_split` already taken off; there is none without `validation_data`.

    Its rows may be `held` on the device already.

    Attributes:
        reasons: Why stock Keras validates; empty if it does not.
    """

    def __init__(self, model: Any, call: dict[str, Any], held: HeldRows | None = None):
        self._model = model
        self._call = call
        self._held = held
        self._source: Source | None = None
        self._prepared: Prepared | None = None
        # What tells its callbacks, and knows by now how long a step takes.
        self._ledger: Ledger | None = None
        # Keras' own, for whoever asks the model for it.
        self._iterator: Any = None
        self.reasons: tuple[Reason, ...] = ()

    def refusals(self) -> tuple[Reason, ...]:
        """Why stock Keras would validate, as far as that can be said before the fit; empty if it would not."""
        if self._call.get("validation_data") is None:
            return ()
        if self._is_read_anew:
            return (reason("read_anew"),)
        plan = self._plan(self._evaluation(None), current().engine)
        return () if plan.accelerated else plan.reasons

    def after_epoch(
        self, epoch: int, callbacks: Any, engine: str, keeps_state: bool = False
    ) -> Generator[None, None, Callable[[], dict[str, Any]]]:
        """The validation after an epoch, in pieces; returns what waits for its logs, none where no validation is due.

        The engine that trains validates too, unless another was asked for. `keeps_state`: as for `evaluate_pieces`.
        """
        if not self.is_due(epoch):
            return dict
        model = self._model
        evaluation = self._evaluation(callbacks)
        if self._iterator is None:
            wished = current().engine
            self._prepare(evaluation, engine if wished == "auto" else wished)
        # A callback may have fitted the same model meanwhile.
        keep_validation(model, self._iterator)
        if self._prepared is not None and not stock.is_overridden("evaluate", model):
            self._ledger = self._ledger or Ledger(callbacks, model, "test")
            call = {**evaluation, "verbose": "auto"}
            end = yield from evaluate_pieces(model, call, self._prepared, self._ledger, keeps_state)
        else:
            logs = model.evaluate(**evaluation, **{KEPT_VALIDATION: True})

            def end() -> Any:
                return logs

        return lambda: {f"val_{name}": value for name, value in end().items()}

    def prepare_ahead(self, epoch: int, callbacks: Any, engine: str) -> None:
        """Have everything ready, and the step being compiled, for the validation after an epoch, if one is due.

        What goes wrong goes wrong again in its own time, when stock Keras would find it.
        """
        is_ours = current().engine in ("auto", engine) and not stock.is_overridden("evaluate", self._model)
        if not is_ours or not self.is_due(epoch) or self._is_read_anew or self._prepared is not None:
            return
        with contextlib.suppress(Exception):
            evaluation = self._evaluation(callbacks)
            plan = self._plan(evaluation, engine)
            if plan.accelerated and isinstance(self._source, ArraySource):
                prepared = prepare(self._model, evaluation, plan, self._source, force=True, held=self._held)
                self._hold(prepared)
                prepared.program.compile_ahead(every_step=False)

    @property
    def _is_read_anew(self) -> bool:
        """Whether the data are a generator, of which stock Keras gives every validation some batches again."""
        return isinstance(self._call["validation_data"], types.GeneratorType)

    @property
    def runs_user_code(self) -> bool:
        """Whether Python of the user may run in it: that of data that are no arrays, or an `evaluate` of its own."""
        if self._call["validation_data"] is None:
            return False
        is_ours = self._held is not None and not stock.is_overridden("evaluate", self._model)
        return not is_ours

    @property
    def has_run_user_code(self) -> bool:
        """Whether Python of the user has run in one, which may have changed the model."""
        if self._prepared is None:
            return self._iterator is not None
        return self._prepared.feed.runs_user_code or stock.is_overridden("evaluate", self._model)

    @property
    def prepared(self) -> Prepared | None:
        """What an engine has ready for it, once that is asked for."""
        return self._prepared

    def evaluate(self, call: dict[str, Any]) -> Any:
        """What the `evaluate` of a user's class comes to, when it asks for the data that the fit keeps."""
        assert self._prepared is not None
        return in_one_go(evaluate_pieces(self._model, call, self._prepared))()

    def follows(self, trained: StepProgram) -> bool:
        """Whether the next one can be launched behind the steps of a program, as `StepProgram.follows` says."""
        prepared = self._prepared
        if prepared is None or stock.is_overridden("evaluate", self._model):
            return False
        feed = prepared.feed
        # Python of the user's would look for the weights in their variables.
        is_plain = feed.placement != "streamed" and not feed.runs_user_code and bool(feed.steps)
        return is_plain and prepared.program.follows(trained)

    def end_pass(self) -> None:
        """Put the metrics into their variables, where they were left to somebody."""
        if self._prepared is not None:
            self._prepared.program.end_pass()

    def close(self) -> None:
        if self._prepared is not None:
            # Each holds the other, and one of them the rows on the device.
            delattr(self._iterator, _LINK)
            self._prepared.feed.close()
            self._prepared = None

    def is_due(self, epoch: int) -> bool:
        call = self._call
        return call["validation_data"] is not None and validates_after(self._model, epoch, call["validation_freq"])

    def _evaluation(self, callbacks: Any) -> dict[str, Any]:
        """The arguments of evaluate that validate the fit."""
        call = self._call
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(call["validation_data"])
        return {
            "x": x,
            "y": y,
            "sample_weight": sample_weight,
            "batch_size": call["validation_batch_size"] or call["batch_size"],
            "steps": call["validation_steps"],
            "callbacks": callbacks,
            "return_dict": True,
        }

    def _plan(self, evaluation: dict[str, Any], engine: str) -> Plan:
        options = Options(engine=engine, force=True)
        plan, self._source = plan_call("evaluate", self._model, evaluation, options, self._source)
        return plan

    def _prepare(self, evaluation: dict[str, Any], engine: str) -> None:
        """Make the data ready, for an engine or, where none can take them, for stock Keras."""
        # A user's `evaluate` ends in Keras' own unless that is replaced, and Keras' own wants its own iterator.
        if self._is_read_anew:
            self._refuse((reason("read_anew"),))
        elif stock.are_replaced() or not stock.is_overridden("evaluate", self._model):
            try:
                plan = self._plan(evaluation, engine)
                if plan.accelerated:
                    self._hold(prepare(self._model, evaluation, plan, self._source, force=True, held=self._held))
                    return
                self._refuse(plan.reasons)
            except Refusal as refusal:
                self._refuse((refusal.reason,))
            except ValueError:
                # Data that Keras takes with a warning (no rows) or refuses in words of its own.
                pass
        self._iterator = validation_iterator(self._model, evaluation)

    def _hold(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._iterator = prepared.feed.iterator
        setattr(self._iterator, _LINK, self)

    def _refuse(self, why: tuple[Reason, ...]) -> None:
        self.reasons = tuple(Reason(one.code, f"In validation: {one.message}") for one in why)


def running_validation(model: Any) -> Validation | None:
    """The validation of the fit that is running on a model, if an engine has its data."""
    found: Validation | None = getattr(kept_validation(model), _LINK, None)
    return found
