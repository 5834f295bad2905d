"""Which tables the code of a model can reach, before any of it runs."""

from __future__ import annotations

from typing import Any

import keras
import pytest
from keras import ops

import flatout
from flatout.tables.loss.discover import reachable_tables

pytestmark = pytest.mark.backend("torch")
_H, _G, _F, _E, _D, _C, _B, _A = (flatout.Table({"k": [0, 1], "w": [1.0, 2.0]}, key="k") for _ in range(8))


def _model(loss: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", loss)
    return model


def test_tables_are_found_in_their_order_in_the_code() -> None:
    """Weights are saved by a table's number, and loaded in another process, where names have other hashes."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        tables = (_C, _A, _H, _E, _B, _G, _D, _F)
        return ops.mean(y_pred, -1) * sum(table.at(y_true).w for table in tables)

    assert reachable_tables(_model(loss)) == [_C, _A, _H, _E, _B, _G, _D, _F]


class _Weighed(keras.losses.Loss):
    @staticmethod
    def first(y_true: Any) -> Any:
        return _A.at(y_true).w

    @classmethod
    def second(cls, y_true: Any) -> Any:
        return _B.at(y_true).w

    @property
    def third(self) -> Any:
        return _C

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.first(y_true) * self.second(y_true) * self.third.at(y_true).w * ops.mean(y_pred, -1)


def test_tables_are_found_in_static_methods_class_methods_and_properties() -> None:
    assert reachable_tables(_model(_Weighed())) == [_A, _B, _C]
