"""Epochs whose steps were launched and of which nobody was told yet: one, or two where one may wait behind another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flatout.engines.rewind import Generators

from .ledger import Ledger
from .passes import Pass, in_one_go
from .preparing.prepared import Prepared
from .validation import Validation

if TYPE_CHECKING:
    from .fit_loop import FitRun


@dataclass
class LaunchedEpoch:
    """An epoch whose steps were launched.

    Attributes:
        before: The generators before the validation, if that was launched behind the steps.
        is_plain: Whether nobody looks at anything before the next epoch may begin.
        validation: The pieces of the validation that are to come.
        end_validation: What waits for its logs, once all pieces are taken.
    """

    number: int
    done: Pass
    is_validated: bool
    before: Generators | None = None
    is_plain: bool = False
    validation: Generator[None, None, Callable[[], dict[str, Any]]] = field(init=False)
    end_validation: Callable[[], dict[str, Any]] | None = None


class LaunchedEpochs:
    """Those of a fit.

    Attributes:
        shall_end: Whether no other one shall follow those of which was told.
    """

    def __init__(self, fit: FitRun, model: Any, prepared: Prepared, validation: Validation):
        self._fit, self._model, self._prepared, self._validation = fit, model, prepared, validation
        self._epochs: list[LaunchedEpoch] = []
        self.shall_end = False

    def may_wait_behind_another(self, ledger: Ledger) -> bool:
        """Whether the next epoch, which `ledger` cuts, may be launched before the last one is known."""
        program, feed = self._prepared.program, self._prepared.feed
        may_wait = all(epoch.is_plain for epoch in self._epochs) and program.runs_ahead
        return may_wait and ledger.takes_at_once(feed.end, program.unit, program.longest)

    def add(self, epoch: LaunchedEpoch) -> Generator[None, None, None]:
        """Take one more, and tell of the one before, in pieces."""
        self._epochs.append(epoch)
        if len(self._epochs) > 1:
            yield from self.tell_of_first()

    def tell_of_first(self) -> Generator[None, None, None]:
        """Wait for the first one and its validation, in pieces, and tell of them; nothing if there is none."""
        if not self._epochs:
            return
        epoch, fit, engine = self._epochs[0], self._fit, self._prepared.engine
        if not self._prepared.program.settle(epoch.done.logs) and epoch.before is not None:
            epoch.validation.close()
            # Whatever was launched behind it has drawn its numbers already.
            now = Generators.now(engine) if epoch.end_validation is not None else None
            try:
                epoch.before.put_back(engine)
                again = self._validation.after_epoch(epoch.number, fit.callbacks, engine.name, keeps_state=True)
                epoch.end_validation = yield from again
            finally:
                if now is not None:
                    now.put_back(engine)
            epoch.before = None
        logs = engine.epoch_logs(self._model, epoch.done.logs)
        engine.end_epoch(self._model, "train")
        if epoch.end_validation is None:
            epoch.end_validation = yield from epoch.validation
        fit.is_validated = epoch.is_validated
        logs.update(epoch.end_validation())
        self._epochs.remove(epoch)
        self.shall_end = not fit.end_epoch(epoch.number, logs) or self.shall_end

    def tell_after_error(self) -> None:
        """Tell of those of which Keras' own History alone hears: their steps were taken, whatever happened since."""
        with contextlib.suppress(Exception):
            while self._epochs and self._epochs[0].is_plain:
                in_one_go(self.tell_of_first())
