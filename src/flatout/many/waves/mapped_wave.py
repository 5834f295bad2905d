"""Candidates of one architecture on jax, trained together: their steps are one program, mapped over models.

Each slot of the program has a candidate, which takes one epoch after the other. Where one is done the next takes its
slot, so that nobody waits for the slowest of a wave; all that callbacks see and do is that of a `fit` of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.base.errors import reason
from flatout.base.when_used import keras
from flatout.data.order.row_order import ResidentFeed
from flatout.engines.contract import in_short
from flatout.engines.jax.engine import JaxProgram
from flatout.engines.jax.mapped_models import MappedModels, TracedModel
from flatout.seam.callbacks import has_users_code, is_default_hook
from flatout.training.fit_loop import FitRun
from flatout.training.passes import look_at_variables
from flatout.training.planning.callback_services import service_for
from flatout.training.running import report

from .ready import Ready


def can_be_mapped(ready: Ready) -> bool:
    """Whether a candidate's callbacks and epochs are served by passes over all rows, and jax runs its steps."""
    call, prepared = ready.call, ready.prepared
    if prepared is None or prepared.plan.engine != "jax":
        return False
    callbacks = keras.tree.flatten(call["callbacks"])
    services = {service_for(callback, task) for callback in callbacks for task in ("train", "test")}
    if not services <= {"none"} or call["steps_per_epoch"] is not None or call["validation_steps"] is not None:
        return False
    return call["validation_data"] is None or _validation_program(ready) is not None


def traced_model(ready: Ready) -> TracedModel:
    """What is traced of a candidate that can be mapped."""
    assert ready.prepared is not None
    assert isinstance(ready.prepared.program, JaxProgram)
    return TracedModel(ready.candidate.model, ready.prepared.program, _validation_program(ready))


def _validation_program(ready: Ready) -> Any:
    """The program of a candidate's validation, if it has one and jax runs it."""
    validation, call = ready.validation, ready.call
    first = next((epoch for epoch in range(call["epochs"]) if validation.is_due(epoch)), None)
    if first is None:
        return None
    if validation.prepared is None:
        validation.prepare_ahead(first, None, "jax")
    return None if validation.prepared is None else validation.prepared.program


class _Lane:
    """A candidate in a slot: its epochs so far, its callbacks, and where its values are."""

    _models: MappedModels

    def __init__(self, ready: Ready, traced: TracedModel, slot: int):
        assert ready.prepared is not None
        self.ready, self._prepared, self._slot = ready, ready.prepared, slot
        self._candidate, self._traced = ready.candidate, traced
        self._began = time.perf_counter()
        with self._candidate.generators():
            self.fit = FitRun(self._candidate.model, ready.call, self._prepared, ready.validation)
            self._epochs = iter(self.fit.begin())
        self._are_blind = not look_at_variables(self.fit.callbacks)
        self._users = [one for one in self.fit.callbacks.callbacks if has_users_code(one)]
        self._numbers = np.arange(0)
        self.epoch = -1

    def enter(self, models: MappedModels) -> None:
        """From here on the values of the model are in its slot."""
        self._models = models
        models.hold(self._slot, self._traced)

    def begin_epoch(self) -> bool:
        """Whether there is an epoch to run; its order is drawn."""
        epoch = next(self._epochs, None)
        if epoch is None:
            return False
        self.epoch = epoch
        with self._heard("on_epoch_begin"):
            self.fit.callbacks.on_epoch_begin(epoch)
        begins, numbers = self.ready.feed.draw_epoch()
        if begins:
            rows = self._traced.rows("train")
            self._numbers = np.arange(rows, dtype=np.int32) if numbers is None else numbers
        return True

    @property
    def order(self) -> np.ndarray:
        return self._numbers

    @property
    def is_validated(self) -> bool:
        return self.ready.validation.is_due(self.epoch)

    @property
    def validation_order(self) -> np.ndarray:
        prepared = self.ready.validation.prepared
        assert prepared is not None
        feed = prepared.feed
        assert isinstance(feed, ResidentFeed)
        _, numbers = feed.draw_epoch()
        feed.end_epoch(feed.end, finished=True)
        return np.arange(self._traced.rows("test"), dtype=np.int32) if numbers is None else numbers

    def begin_validation(self) -> None:
        with self._heard("on_test_begin"):
            self.fit.callbacks.on_test_begin()

    def end_validation(self, logs: dict[str, Any]) -> None:
        with self._heard("on_test_end"):
            self.fit.callbacks.on_test_end(logs)

    def end_epoch(self, logs: dict[str, Any]) -> bool:
        """Whether another epoch shall follow."""
        feed = self.ready.feed
        self._prepared.steps += feed.end
        feed.end_epoch(feed.end, finished=True)
        with self._heard("on_epoch_end"), self._traced.unseen() if self._are_blind else contextlib.nullcontext():
            return self.fit.end_epoch(self.epoch, logs)

    def end(self, finished: bool) -> None:
        """The model has its values back, and its callbacks hear the last."""
        candidate, model = self._candidate, self._candidate.model
        self._models.give_back(self._slot, self._traced)
        with candidate.generators():
            self.fit.end(finished)
        if finished:
            candidate.finish(time.perf_counter() - self._began)
        report(model, self._prepared, self._prepared.steps, self._began, self.ready.validation.reasons)
        self.ready.feed.close()

    @contextlib.contextmanager
    def _heard(self, hook: str) -> Iterator[None]:
        """While callbacks are told: what one looks at, and may change, goes onto the stack again afterwards.

        Keras' own ask the model for it; the user's may hold a layer or a variable and ask that.
        """
        if not all(is_default_hook(one, hook) for one in self._users):
            self._models.give_back(self._slot, self._traced)
        with self._candidate.generators():
            yield
        if self._traced.has_its_values:
            self._models.put(self._slot, self._traced.values())
            self.enter(self._models)


def run_mapped(group: list[tuple[Ready, TracedModel]], slots: int) -> bool:
    """Train candidates that have one digest, `slots` of them at a time; False if they cannot be mapped."""
    slots = min(slots, len(group))
    try:
        models = MappedModels([traced for _, traced in group], slots)
    except Exception as error:
        # Nothing of them has begun. What is wrong with a step by itself is found, and told, when it runs by itself.
        why = reason("not_mapped", in_short(error))
        for ready, _ in group:
            assert ready.prepared is not None
            ready.prepared.plan = replace(ready.prepared.plan, reasons=(*ready.prepared.plan.reasons, why))
        return False
    waiting = deque(group)
    lanes: list[_Lane | None] = []
    finished = False
    try:
        for slot in range(slots):
            lanes.append(_next(waiting, models, slot))
        while True:
            for slot, lane in enumerate(lanes):
                while lane is not None and not lane.begin_epoch():
                    lane = _followed(lanes, slot, waiting, models)
            running = [(slot, lane) for slot, lane in enumerate(lanes) if lane is not None]
            if not running:
                break
            logs = _pass(models, "train", {slot: lane.order for slot, lane in running})
            validated = {slot: lane for slot, lane in running if lane.is_validated}
            if validated:
                for lane in validated.values():
                    lane.begin_validation()
                found = _pass(models, "test", {slot: lane.validation_order for slot, lane in validated.items()})
                for slot, lane in validated.items():
                    lane.end_validation(found[slot])
                    logs[slot].update({f"val_{name}": value for name, value in found[slot].items()})
            for slot, lane in running:
                if not lane.end_epoch(logs[slot]):
                    _followed(lanes, slot, waiting, models)
        finished = True
    finally:
        if not finished:
            for lane in lanes:
                if lane is not None:
                    lane.end(finished=False)
    return True


def _followed(lanes: list[_Lane | None], slot: int, waiting: Any, models: MappedModels) -> _Lane | None:
    """End the candidate in a slot; the next one is there instead."""
    lane, lanes[slot] = lanes[slot], None
    assert lane is not None
    lane.end(finished=True)
    lanes[slot] = _next(waiting, models, slot)
    return lanes[slot]


def _next(waiting: deque[tuple[Ready, TracedModel]], models: MappedModels, slot: int) -> _Lane | None:
    """The next candidate in a free slot, if there is one."""
    if not waiting:
        return None
    ready, traced = waiting.popleft()
    lane = _Lane(ready, traced, slot)
    models.fill(slot, traced)
    lane.enter(models)
    return lane


def _pass(models: MappedModels, task: Any, orders: dict[int, np.ndarray]) -> list[dict[str, Any]]:
    """A pass of all slots; others than those of `orders` go with another's rows, and have their values back then."""
    some = next(iter(orders.values()))
    # Who trains has no others beside it but empty slots.
    others = [] if task == "train" else [slot for slot in range(models.slots) if slot not in orders]
    kept = {slot: models.take(slot) for slot in others}
    logs = models.run(task, np.stack([orders.get(slot, some) for slot in range(models.slots)]))
    for slot, values in kept.items():
        models.put(slot, values)
    return logs
