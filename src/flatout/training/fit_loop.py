"""fit: the loop over epochs, Keras' own line by line, from the first callback to the last."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from flatout.base.warning import warn
from flatout.base.when_used import keras
from flatout.engines.contract import company
from flatout.engines.rewind import Generators
from flatout.seam.callbacks import has_users_code
from flatout.seam.epoch_iterators import forget_validation, keep_validation
from flatout.seam.trainers import check_step_function, first_epoch

from .ledger import Ledger, on_host
from .passes import Pass, callback_list, in_one_go, look_at_variables, pass_pieces, users_callbacks
from .preparing.prepared import Prepared
from .validation import Validation


class FitRun:
    """Keras' `fit` from its first callback on, in pieces: whoever runs the steps calls them in their order.

    With `can_tell_later` Keras' own History, if nobody else hears of epochs, does so when `tell` is called.

    Attributes:
        callbacks: Keras' `CallbackList`.
        tells_later: Whether nobody can tell when epochs are told of.
        is_validated: Whether nothing was trained since the last validation.
    """

    def __init__(
        self,
        model: Any,
        call: dict[str, Any],
        prepared: Prepared,
        validation: Validation,
        can_tell_later: bool = False,
    ):
        self._model, self._engine, self._feed, self._program = model, prepared.engine, prepared.feed, prepared.program
        self._validation = validation
        last = call["epochs"]
        max_epochs = keras.config.max_epochs()
        if max_epochs and max_epochs < last:
            warn(f"Limiting epochs to {max_epochs}")
            last = max_epochs
        keep_validation(model, None)
        self.callbacks = callback_list(model, call, self._feed.steps, last, add_history=True)
        model.make_train_function()
        model.stop_training = False
        self._logs: dict[str, Any] | None = None
        self._last, self._initial = last, call["initial_epoch"]
        self.tells_later = can_tell_later and _only_history_hears(self.callbacks)
        self._untold: list[Callable[[], None]] = []
        self.is_validated = False
        self._feed.reset()

    def begin(self) -> range:
        """The first callback; returns the numbers of the epochs."""
        self.callbacks.on_train_begin()
        return range(first_epoch(self._model, self._initial), self._last)

    def begin_epoch(self, epoch: int) -> None:
        if not self.tells_later:
            self.callbacks.on_epoch_begin(epoch)
        self._engine.begin_epoch(self._model, "train")
        check_step_function(self._model, "train")
        self.is_validated = False

    def end_epoch(self, epoch: int, logs: dict[str, Any]) -> bool:
        """Tell of an epoch and its validation; whether another one shall follow."""
        # Not sooner: the device may be at work on both passes.
        self._logs = on_host(logs)
        if self.tells_later:
            # Others may have begun meanwhile.
            self._untold.append(functools.partial(self.callbacks.on_epoch_begin, epoch))
        self._untold.append(functools.partial(self.callbacks.on_epoch_end, epoch, self._logs))
        if not self.tells_later:
            self.tell()
        return not (self._model.stop_training or self._feed.is_exhausted)

    def tell(self) -> None:
        """Tell of what nobody was told yet."""
        untold, self._untold = self._untold, []
        for tells in untold:
            tells()

    def end(self, finished: bool) -> None:
        """After the last epoch, or an error."""
        model, engine = self._model, self._engine
        # Whatever becomes of the device.
        self.tell()
        # Whoever was the last one has the metrics.
        last, other = (self._validation, self._program) if self.is_validated else (self._program, self._validation)
        other.end_pass()
        last.end_pass()
        finalizes = isinstance(model.optimizer, keras.optimizers.Optimizer) and self._last > 0
        if finalizes and (finished or engine.finalizes_after_errors):
            model.optimizer.finalize_variable_values(model.trainable_weights)
        self._validation.close()
        forget_validation(model)
        if finished:
            self.callbacks.on_train_end(logs=self._logs)
        engine.end_run(model)


def fit_pieces(model: Any, call: dict[str, Any], prepared: Prepared, validation: Validation) -> Iterator[None]:
    """Keras' `fit` from its first callback on, in pieces: each ends where the next would wait for the device."""
    engine, feed, program = prepared.engine, prepared.feed, prepared.program
    # A stream may end the fit, and the user's Python see who was told of what.
    can_tell_later = feed.placement != "streamed" and program.runs_no_python
    fit = FitRun(model, call, prepared, validation, can_tell_later)
    watched = users_callbacks(fit.callbacks)
    looked_at = look_at_variables(fit.callbacks) or feed.runs_user_code
    epochs = fit.begin()
    finished = False
    # What is left to do of an epoch when the next one was launched.
    behind: Generator[None, None, bool] | None = None
    try:
        mark = engine.mark if feed.placement == "streamed" else None
        ledger = Ledger(fit.callbacks, model, "train", mark)
        goes_on = True
        for epoch in epochs:
            engine.reset_metrics(model)
            fit.begin_epoch(epoch)
            if watched:
                program.renew()
            elif engine.compiles_ahead and prepared.steps == 0 and feed.placement != "streamed":
                # None of the user's Python runs before the first validation is over: what that needs is traced and
                # placed while the training is compiled.
                program.compile_ahead(ledger.is_watched)
                validation.prepare_ahead(epoch, fit.callbacks, engine.name)
            done = yield from pass_pieces(model, prepared, ledger)
            is_validated = validation.is_due(epoch)
            follows = is_validated and not looked_at and validation.follows(program)
            launched = _LaunchedEpoch(epoch, done, is_validated, Generators.now(engine) if follows else None)
            launched.validation = validation.after_epoch(epoch, fit.callbacks, engine.name, keeps_state=follows)
            is_alone = company().models == 1
            if follows and is_alone:
                # Not beside other models: what waits for these steps would keep theirs from the device.
                next(launched.validation)
            if looked_at or (is_validated and not follows):
                program.end_pass()
            else:
                program.keep_state()
            # The device is still at work.
            fit.tell()
            is_plain = fit.tells_later and is_alone and not looked_at and (follows or not is_validated)
            if is_plain and program.runs_ahead and ledger.takes_at_once(feed.end, program.unit, program.longest):
                launched.end_validation = yield from launched.validation
                fit.is_validated = is_validated
            if behind is not None:
                goes_on = yield from behind
            behind = _rest_of_epoch(launched, fit, model, prepared, validation)
            # Steps that have failed are taken again, and those behind them too, before any others.
            if launched.end_validation is None or not program.runs_ahead or not goes_on:
                goes_on = (yield from behind) and goes_on
                behind = None
            if not goes_on:
                break
        if behind is not None:
            yield from behind
        finished = True
    except BaseException:
        if behind is not None:
            with contextlib.suppress(Exception):
                in_one_go(behind)
        raise
    finally:
        fit.end(finished)


@dataclass
class _LaunchedEpoch:
    """An epoch whose steps were launched.

    Attributes:
        before: The generators before the validation, if that was launched behind the steps.
        validation: The pieces of the validation that are to come.
        end_validation: What waits for its logs, once all pieces are taken.
    """

    number: int
    done: Pass
    is_validated: bool
    before: Generators | None
    validation: Generator[None, None, Callable[[], dict[str, Any]]] = field(init=False)
    end_validation: Callable[[], dict[str, Any]] | None = None


def _rest_of_epoch(
    epoch: _LaunchedEpoch, fit: FitRun, model: Any, prepared: Prepared, validation: Validation
) -> Generator[None, None, bool]:
    """Wait for an epoch and its validation, in pieces, and tell of them; returns whether another one shall follow."""
    engine = prepared.engine
    has_stood = prepared.program.settle()
    if not has_stood and epoch.before is not None:
        epoch.validation.close()
        epoch.before.put_back(engine)
        epoch.validation = validation.after_epoch(epoch.number, fit.callbacks, engine.name, keeps_state=True)
        epoch.end_validation = None
    logs = engine.epoch_logs(model, epoch.done.logs)
    engine.end_epoch(model, "train")
    if epoch.end_validation is None or not has_stood:
        epoch.end_validation = epoch.end_validation or (yield from epoch.validation)
        fit.is_validated = epoch.is_validated
    logs.update(epoch.end_validation())
    return fit.end_epoch(epoch.number, logs)


def _only_history_hears(callbacks: Any) -> bool:
    """Whether nobody can tell when epochs are told of, nor end the fit."""
    is_history = all(type(one) is keras.callbacks.History for one in callbacks.callbacks)
    return is_history and not any(map(has_users_code, (callbacks, *callbacks.callbacks)))
