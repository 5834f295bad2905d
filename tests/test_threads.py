"""Fits in several threads at once give what they give one after the other, and leave the process as it was."""

from __future__ import annotations

import sys
import threading
import warnings

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import flatout  # noqa: E402

X = np.random.default_rng(0).normal(size=(320, 8)).astype("float32")
THREADS = 4


def build(seed, drops):
    keras.utils.set_random_seed(seed)
    drop = [keras.layers.Dropout(0.3, seed=seed)] if drops else []
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), *drop, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def fit_with(fit, model):
    return fit(model, X, X[:, :1], epochs=3, shuffle=False, verbose=0).history["loss"]


@pytest.mark.parametrize("drops", [False, True], ids=["plain", "dropout"])
def test_fits_in_threads_equal_fits_one_after_the_other(forced, drops):
    expected = [fit_with(keras.Model.fit, build(seed, drops)) for seed in range(THREADS)]
    models = [build(seed, drops) for seed in range(THREADS)]
    found: list = [None] * THREADS
    before = sys.stdout, warnings.filters[:], sys.getprofile()

    def run(number):
        try:
            found[number] = fit_with(flatout.fit, models[number])
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
    assert (sys.stdout, warnings.filters[:], sys.getprofile()) == before
    plans = flatout.explain()[-THREADS:]
    assert [(plan.engine, plan.reasons) for plan in plans] == [(keras.config.backend(), ())] * THREADS
