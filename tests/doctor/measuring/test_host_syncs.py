from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from flatout.bench.bench_device import device
from flatout.doctor.measuring.host_syncs import HostSync, HostSyncs

_X, _Y = np.ones((16, 3), "float32"), np.ones((16, 1), "float32")
_STEPS = 4


def _model(**compiled: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    return model


def _line_of(function: Callable[..., Any], text: str) -> int:
    """The number of the first line of a function that contains a text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if text in line)


def _watch(model: keras.Model, **kwargs: Any) -> list[HostSync]:
    model.fit(_X, _Y, batch_size=4, verbose=0)
    with HostSyncs() as reads:
        model.fit(_X, _Y, batch_size=4, verbose=0, **kwargs)
    return reads.syncs()


def _of_user(syncs: list[HostSync]) -> dict[int, tuple[int, str]]:
    found = [sync for sync in syncs if sync.is_of_user]
    assert all(sync.path == __file__ and sync.source for sync in found)
    return {sync.line: (sync.count, sync.how) for sync in found}


def _tensor() -> Any:
    """A value that lies on the device."""
    return keras.ops.sum(keras.ops.ones((3,)) * 2)


def _is_refused_by_numpy() -> bool:
    """Whether a tensor has to be copied to the host first."""
    return keras.config.backend() == "torch" and device().is_gpu


class _Reading(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        # A value of its own for each: jax keeps what it has read once.
        float(_tensor())
        int(_tensor())
        bool(_tensor())
        keras.ops.convert_to_numpy(_tensor())
        if not _is_refused_by_numpy():
            np.asarray(_tensor())


def test_every_way_to_read_is_counted_once_with_its_line() -> None:
    syncs = _watch(_model(), callbacks=[_Reading()])
    read = _Reading.on_train_batch_end
    found = _of_user(syncs)
    assert {line: count for line, (count, _) in found.items()} == {
        _line_of(read, text): _STEPS
        for text in ("float(", "int(_", "bool(", "convert_to_numpy(", *([] if _is_refused_by_numpy() else ["asarray("]))
    }
    hows = [found[_line_of(read, text)][1] for text in ("float(", "int(_", "bool(")]
    assert hows == ["float()", "int()", "bool()"]
    assert {sync.part for sync in syncs if sync.is_of_user} == {"callbacks"}


def test_what_keras_reads_by_itself_is_keras() -> None:
    class Silent(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
            pass

    syncs = _watch(_model(), callbacks=[Silent()])
    assert syncs
    assert not any(sync.is_of_user for sync in syncs)
    assert all(f"{os.sep}keras{os.sep}src{os.sep}" in sync.path and sync.source for sync in syncs)
    assert any(sync.part == "callbacks" and sync.count >= _STEPS for sync in syncs)


@pytest.mark.backend("torch")
def test_a_loss_that_reads_row_by_row() -> None:
    def loss(y_true: Any, y_pred: Any) -> Any:
        weights = [1.0 + row.item() for row in y_true[:, 0]]
        if y_pred.mean() > 1e9:
            return y_pred.mean()
        rows = y_pred.detach().cpu().numpy()
        return ((y_pred - y_true) ** 2).mean() * sum(weights) * len(rows.tolist())

    syncs = _watch(_model(loss=loss))
    assert _of_user(syncs) == {
        _line_of(loss, "row.item()"): (16, ".item()"),
        _line_of(loss, "if y_pred"): (_STEPS, "bool()"),
        _line_of(loss, ".numpy()"): (_STEPS, ".cpu()" if device().is_gpu else ".numpy()"),
    }
    assert {sync.part for sync in syncs if sync.is_of_user} == {"loss"}


@pytest.mark.backend("jax")
def test_reads_of_jax_arrays() -> None:
    class Reading(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            import jax

            _tensor().item()
            keras.ops.ones((3,)).tolist()
            str(_tensor())
            jax.device_get(_tensor())

    read = Reading.on_epoch_end
    assert _of_user(_watch(_model(), callbacks=[Reading()])) == {
        _line_of(read, ".item()"): (1, ".item()"),
        _line_of(read, ".tolist()"): (1, ".tolist()"),
        _line_of(read, "str("): (1, "value"),
        _line_of(read, "jax.device_get("): (1, "np.asarray()"),
    }


@pytest.mark.backend("tensorflow")
def test_reads_of_eager_steps() -> None:
    def loss(y_true: Any, y_pred: Any) -> Any:
        y_pred.numpy()
        return keras.ops.mean((y_pred - y_true) ** 2)

    syncs = _watch(_model(loss=loss, run_eagerly=True))
    assert _of_user(syncs) == {_line_of(loss, "y_pred.numpy()"): (_STEPS, ".numpy()")}


_ATTRIBUTES = ("item", "numpy", "cpu", "tolist", "_value", "_numpy", "__array__")
_ATTRIBUTES += ("__bool__", "__float__", "__int__", "__index__", "__complex__")


def _read_attributes() -> list[Any]:
    cls: Any = type(_tensor())
    attributes = [vars(one).get(name) for one in cls.__mro__ for name in _ATTRIBUTES]
    own = [name in vars(cls) for name in _ATTRIBUTES]
    return [*attributes, own, np.asarray, np.array, warnings.showwarning, list(warnings.filters)]


def test_everything_is_restored_exactly() -> None:
    before = _read_attributes()
    with HostSyncs():
        assert _read_attributes() != before
    after = _read_attributes()
    assert all(one is other or one == other for one, other in zip(before, after, strict=True))
    with pytest.raises(KeyError), HostSyncs():
        raise KeyError
    after = _read_attributes()
    assert all(one is other or one == other for one, other in zip(before, after, strict=True))
    assert float(_tensor()) == 6


def test_a_read_that_fails_fails_as_it_does_without() -> None:
    pair = keras.ops.ones((2,))
    with pytest.raises((TypeError, ValueError, RuntimeError)) as without:
        float(pair)
    with HostSyncs() as reads, pytest.raises(without.type, match=r".") as within:
        float(pair)
    assert str(within.value) == str(without.value)
    assert reads.syncs() == []


def test_what_is_read_afterwards_is_not_counted() -> None:
    with HostSyncs() as reads:
        pass
    float(_tensor())
    assert reads.syncs() == []


@pytest.mark.backend("torch")
def test_a_compiled_function_runs_as_it_does_without() -> None:
    import torch

    def halve_large(x: Any) -> Any:
        return x / 2 if x.sum().item() > 3 else x

    compiled = torch.compile(halve_large, backend="eager")
    with HostSyncs():
        assert compiled(torch.ones(4)).tolist() == [0.5] * 4
        assert compiled(torch.ones(2)).tolist() == [1.0] * 2


@pytest.mark.gpu
@pytest.mark.backend("torch")
def test_cuda_tells_of_waits_that_no_method_shows() -> None:
    def loss(y_true: Any, y_pred: Any) -> Any:
        rows = y_pred[y_true > 0]
        rows.sum().item()
        return ((y_pred - y_true) ** 2).mean()

    assert _of_user(_watch(_model(loss=loss))) == {
        _line_of(loss, "y_pred[y_true > 0]"): (_STEPS, "CUDA synchronization"),
        _line_of(loss, ".item()"): (_STEPS, ".item()"),
    }
