"""Whose code runs when a callback is called."""

from __future__ import annotations

import functools
from typing import Any

import keras
import pytest
from keras import callbacks

from flatout.seam.callbacks import has_users_code


class Own(callbacks.EarlyStopping):
    """A user's."""


def test_keras_own_callbacks_are_keras_code() -> None:
    for made in (
        callbacks.History(),
        callbacks.EarlyStopping(),
        callbacks.ReduceLROnPlateau(),
        callbacks.LambdaCallback(),
    ):
        assert not has_users_code(made), made
    assert not has_users_code(callbacks.CallbackList([callbacks.CSVLogger("log.csv")], add_history=True))


def test_classes_hooks_and_helpers_of_the_users_are_not() -> None:
    stopping = callbacks.EarlyStopping()
    stopping.get_monitor_value = lambda logs: 0.0
    whole = callbacks.CallbackList()
    whole.on_epoch_end = functools.partial(print)
    assert all(map(has_users_code, (Own(), callbacks.LambdaCallback(on_epoch_end=print), stopping, whole)))


def test_a_class_that_was_patched_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    own = callbacks.History.on_epoch_end

    @functools.wraps(own)
    def hook(self: Any, epoch: int, logs: Any = None) -> None:
        own(self, epoch, logs)

    monkeypatch.setattr(keras.callbacks.History, "on_epoch_end", hook)
    assert has_users_code(callbacks.History())
