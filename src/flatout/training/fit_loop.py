"""fit: the loop over epochs, Keras' own line by line, from the first callback to the last."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from flatout.base.warning import warn
from flatout.base.when_used import keras
from flatout.engines.contract import company
from flatout.engines.rewind import Generators
from flatout.seam.callbacks import has_users_code
from flatout.seam.epoch_iterators import forget_validation, keep_validation
from flatout.seam.trainers import check_step_function, first_epoch

from .launched_epochs import LaunchedEpoch, LaunchedEpochs
from .ledger import Ledger, on_host
from .passes import callback_list, look_at_variables, pass_pieces, users_callbacks
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
    untold = LaunchedEpochs(fit, model, prepared, validation)
    try:
        mark = engine.mark if feed.placement == "streamed" else None
        ledger = Ledger(fit.callbacks, model, "train", mark)
        for epoch in epochs:
            if not untold.may_wait_behind_another(ledger):
                yield from untold.tell_of_first()
            if untold.shall_end:
                break
            engine.reset_metrics(model)
            fit.begin_epoch(epoch)
            if watched or validation.has_run_user_code:
                program.renew()
            elif engine.compiles_ahead and prepared.steps == 0 and feed.placement != "streamed":
                # None of the user's Python runs before the first validation is over: what that needs is traced and
                # placed while the training is compiled.
                program.compile_ahead(ledger.is_watched)
                validation.prepare_ahead(epoch, fit.callbacks, engine.name)
            done = yield from pass_pieces(model, prepared, ledger)
            launched = LaunchedEpoch(epoch, done, validation.is_due(epoch))
            follows = launched.is_validated and not looked_at and validation.follows(program)
            if follows:
                launched.before = Generators.now(engine)
            launched.validation = validation.after_epoch(epoch, fit.callbacks, engine.name, keeps_state=follows)
            # Not beside other models: what waits for these steps would keep theirs from the device.
            is_alone = company().models == 1
            if follows and is_alone:
                next(launched.validation)
            if looked_at or (launched.is_validated and not follows):
                program.end_pass()
            else:
                program.keep_state()
                launched.is_plain = fit.tells_later and is_alone
            # The device is still at work.
            fit.tell()
            if launched.is_plain:
                launched.end_validation = yield from launched.validation
            yield from untold.add(launched)
        yield from untold.tell_of_first()
        finished = True
    except BaseException:
        untold.tell_after_error()
        raise
    finally:
        fit.end(finished)


def _only_history_hears(callbacks: Any) -> bool:
    """Whether nobody can tell when epochs are told of, nor end the fit."""
    is_history = all(type(one) is keras.callbacks.History for one in callbacks.callbacks)
    return is_history and not any(map(has_users_code, (callbacks, *callbacks.callbacks)))
