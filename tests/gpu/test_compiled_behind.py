"""On a GPU the step is compiled behind the run, exchanged, and ends where the recorded one ends."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

keras = pytest.importorskip("keras")
torch = pytest.importorskip("torch")
if keras.backend.backend() != "torch" or not torch.cuda.is_available():
    pytest.skip("needs KERAS_BACKEND=torch and CUDA", allow_module_level=True)

from keras import layers  # noqa: E402

import flatout  # noqa: E402
from flatout.engines.torch.compiled import exchange  # noqa: E402
from flatout.engines.torch.replay import cuda_graph  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("full_precision")]

BATCH, STEPS = 16, 24
ROWS = BATCH * STEPS + 5
RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(size=(ROWS, 12)).astype("float32")
IMAGES = RANDOM.normal(size=(ROWS, 8, 8, 3)).astype("float32")
TOKENS = RANDOM.integers(0, 20, (ROWS, 7))
LABELS = RANDOM.integers(0, 3, ROWS)
opt = keras.optimizers


def dense(optimizer="adam", *more, policy="float32"):
    return keras.Sequential([keras.Input((12,)), layers.Dense(16, "relu", dtype=policy), *more]), optimizer, NUMBERS


def images():
    inner = [layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D(), layers.Dropout(0.3), layers.Flatten()]
    # Biases before a normalization have no gradient: Adam would make much of its rounding.
    convolution = layers.Conv2D(8, 3, padding="same", use_bias=False)
    return keras.Sequential([keras.Input((8, 8, 3)), convolution, *inner]), "adam", IMAGES


def sentences(recurrent):
    return keras.Sequential([keras.Input((7,)), layers.Embedding(20, 8, mask_zero=True), recurrent]), "adam", TOKENS


def attention():
    tokens = keras.Input((7,), dtype="int32")
    hidden = layers.Embedding(20, 8)(tokens)
    hidden = layers.LayerNormalization()(hidden + layers.MultiHeadAttention(2, 4, dropout=0.1)(hidden, hidden))
    return keras.Model(tokens, layers.GlobalAveragePooling1D()(hidden)), "rmsprop", TOKENS


CASES = {
    "adam": dense,
    "sgd": lambda: dense(opt.SGD(0.1, momentum=0.9)),
    "adamw, clipped": lambda: dense(opt.AdamW(0.01, clipnorm=0.5)),
    "dropout": lambda: dense("adam", layers.Dropout(0.5), layers.Dense(8), layers.Dropout(0.2)),
    "dropout, seeded": lambda: dense("adam", layers.Dropout(0.5, seed=3), layers.GaussianNoise(0.1, seed=4)),
    "accumulation": lambda: dense(opt.Adam(gradient_accumulation_steps=3)),
    "bfloat16": lambda: dense("adam", layers.BatchNormalization(), policy="mixed_bfloat16"),
    "images": images,
    "lstm": lambda: sentences(layers.Bidirectional(layers.LSTM(8))),
    "gru": lambda: sentences(layers.GRU(8)),
    "attention": attention,
}


def fit(case, epochs, callbacks=()):
    keras.utils.set_random_seed(5)
    inner, optimizer, x = CASES[case]()
    model = keras.Sequential([inner, layers.Dense(3, activation="softmax")])
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    with flatout.options(engine="torch", force=True):
        flatout.fit(model, x, LABELS, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=list(callbacks))
    return model, [why for why in flatout.explain()[-1].reasons if "compiled" in why.code]


measured_seconds = cuda_graph._Launches._seconds


def timed_alike(*args):
    """Neither is faster for certain in a model so small, on a GPU that others use as well."""
    assert all(0 < seconds < 1 for seconds in measured_seconds(*args))
    return [1e-3, 1e-3]


def worth(monkeypatch, seconds):
    """Have steps compiled and exchanged if so much is left of the run."""
    for name in ("_WORTH_COMPILING", "_WORTH_LOADING", "_WORTH_EXCHANGING"):
        monkeypatch.setattr(exchange, name, seconds)
    monkeypatch.setattr(exchange, "_PAUSE", 0.0)
    monkeypatch.setattr(cuda_graph._Launches, "_seconds", timed_alike)


class UntilExchanged(keras.callbacks.Callback):
    """Ends the fit when the step was exchanged, or cannot be."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.end, self.is_over = time.monotonic() + 300, False
        for name in ("succeed", "fail"):
            monkeypatch.setattr(exchange.Exchange, name, self._told(getattr(exchange.Exchange, name)))

    def _told(self, method):
        def tell(*args):
            self.is_over = True
            method(*args)

        return tell

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = self.is_over or time.monotonic() > self.end


@pytest.mark.parametrize("case", CASES)
def test_a_fit_whose_step_was_exchanged_ends_where_it_would_have(case, monkeypatch):
    worth(monkeypatch, float("inf"))
    plain, told = fit(case, 4)
    assert told == []
    worth(monkeypatch, 0.0)
    _, told = fit(case, 1_000_000, [UntilExchanged(monkeypatch)])
    assert [why.code for why in told] == ["compiled_behind"], told
    # It is loaded now, and taken as soon as the device tells how long a step takes.
    compiled, told = fit(case, 4)
    assert [why.code for why in told] == ["compiled_behind"], told
    assert int(re.search(r"after (\d+) steps", told[0].message)[1]) <= 3 * STEPS
    tolerance = 2e-2 if case == "bfloat16" else 1e-4
    for name, values in plain.history.history.items():
        np.testing.assert_allclose(compiled.history.history[name], values, rtol=tolerance, atol=tolerance)
    for a, b in zip(plain.get_weights(), compiled.get_weights(), strict=True):
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=10 * tolerance)


def test_steps_with_logs_are_compiled_for_who_looks_at_each(monkeypatch):
    seen = []
    look = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs["loss"]))
    worth(monkeypatch, float("inf"))
    fit("adam", 3, [look])
    wanted, seen = seen, []
    worth(monkeypatch, 0.0)
    fit("adam", 1_000_000, [look, UntilExchanged(monkeypatch)])
    seen.clear()
    _, told = fit("adam", 3, [look])
    assert [why.code for why in told] == ["compiled_behind"]
    np.testing.assert_allclose(seen, wanted, rtol=1e-4)


def test_a_compiled_step_that_is_slower_is_not_taken(monkeypatch):
    worth(monkeypatch, 0.0)
    monkeypatch.setattr(cuda_graph._Launches, "_seconds", lambda *_: [1e-3, 2e-3])
    _, told = fit("adam", 1_000_000, [UntilExchanged(monkeypatch)])
    assert [why.code for why in told] == ["not_compiled"]
    assert "slower" in told[0].message


def test_a_compiled_step_that_does_something_else_is_not_taken(monkeypatch):
    worth(monkeypatch, 0.0)
    fit("adam", 1_000_000, [UntilExchanged(monkeypatch)])
    right = exchange.SegmentedStep.with_compiled

    def wrong(step, functions):
        def forgets(function):
            def run(*inputs):
                kept = [one.clone() for one in inputs[:6]]
                out = function(*inputs)
                for one, before in zip(inputs, kept, strict=False):
                    one.copy_(before)
                return out

            return run

        return right(step, [forgets(function) for function in functions])

    monkeypatch.setattr(exchange.SegmentedStep, "with_compiled", wrong)
    _, told = fit("adam", 3)
    assert [why.code for why in told] == ["not_compiled"]
    monkeypatch.undo()
