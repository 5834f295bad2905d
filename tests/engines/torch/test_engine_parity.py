"""The torch engine ends where stock `fit` ends: variables, optimizer state, metrics, logs and random states."""

from __future__ import annotations

import numpy as np
import pytest

keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("needs KERAS_BACKEND=torch", allow_module_level=True)

import torch  # noqa: E402
from keras import layers  # noqa: E402

from flatout.engines.torch.engine import TorchEngine  # noqa: E402

# A step that takes long, also on a busy machine, would not be recorded.
pytestmark = pytest.mark.usefixtures("forced")

ROWS, BATCH = 70, 16
generator = np.random.default_rng(0)
X = generator.normal(size=(ROWS, 12)).astype("float32")
IMAGES = generator.random((ROWS, 8, 8, 3)).astype("float32")
TOKENS = generator.integers(0, 20, (ROWS, 6))
LABELS = generator.integers(0, 3, ROWS)
BINARY = generator.integers(0, 2, (ROWS, 1)).astype("float32")
TARGETS = generator.normal(size=(ROWS, 1)).astype("float32")
WEIGHTS = generator.random(ROWS).astype("float32")


def dense(*extra, l2=None):
    return keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(16, activation="relu", kernel_regularizer=l2 and keras.regularizers.L2(l2)),
            *extra,
            layers.Dense(3, activation="softmax"),
        ]
    )


def classifier(optimizer, *extra, metrics=("accuracy",), **kwargs):
    model = dense(*extra, **kwargs)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=list(metrics))
    return model, X, LABELS, None


def compiled(model, x, y, loss, optimizer="adam", metrics=(), weights=None, **kwargs):
    model.compile(optimizer, loss, metrics=list(metrics), **kwargs)
    return model, x, y, weights


def with_policy(policy):
    keras.config.set_dtype_policy(policy)
    try:
        return classifier("adam", layers.BatchNormalization())
    finally:
        keras.config.set_dtype_policy("float32")


def frozen():
    model, *rest = classifier("adam", layers.BatchNormalization())
    model.layers[0].trainable = False
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, *rest


def two_in_two_out():
    a, b = keras.Input((12,), name="a"), keras.Input((12,), name="b")
    hidden = layers.Dense(8, activation="tanh")(layers.Concatenate()([a, b]))
    model = keras.Model({"a": a, "b": b}, {"class": layers.Dense(3)(hidden), "value": layers.Dense(1)(hidden)})
    loss = {"class": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "value": "mse"}
    model.compile("adam", loss, metrics={"class": ["accuracy"]}, loss_weights={"class": 1.0, "value": 0.3})
    return model, {"b": X * 2, "a": X}, {"value": TARGETS, "class": LABELS}, None


class Activity(layers.Layer):
    def call(self, x):
        self.add_loss(0.01 * keras.ops.mean(keras.ops.square(x)))
        return x


class OwnStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(8, activation="relu"), layers.Dense(1)
        self.mae = keras.metrics.MeanAbsoluteError(name="mae")

    def call(self, x):
        return self.out(self.hidden(x))

    @property
    def metrics(self):
        return [self.mae]

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        y_pred = self(x, training=True)
        loss = keras.ops.mean(keras.ops.square(y - y_pred))
        loss.backward()
        variables = list(self.trainable_weights)
        with torch.no_grad():
            self.optimizer.apply([v.value.grad for v in variables], variables)
        self.mae.update_state(y, y_pred)
        return {"mae": self.mae.result(), "loss": loss}


def attention():
    inputs = keras.Input((6,))
    x = layers.Embedding(20, 8)(inputs)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    model = keras.Model(inputs, layers.Dense(3, activation="softmax")(x))
    return compiled(model, TOKENS, LABELS, "sparse_categorical_crossentropy", metrics=["accuracy"])


def convolution(*front):
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            *front,
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(3, activation="softmax"),
        ]
    )
    return compiled(model, IMAGES, LABELS, "sparse_categorical_crossentropy", metrics=["accuracy"])


def sequence(cell):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Embedding(20, 8),
            layers.Bidirectional(cell(5)),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    return compiled(model, TOKENS, BINARY, "binary_crossentropy", metrics=["accuracy"])


def schedule():
    rate = keras.optimizers.schedules.CosineDecay(0.0, 20, warmup_target=0.01, warmup_steps=4)
    return keras.optimizers.SGD(rate, momentum=0.9)


def fast_growing_scale():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model, *rest = classifier("adam")
        inner = keras.optimizers.Adam(gradient_accumulation_steps=2)
        optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**28, dynamic_growth_steps=3)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model, *rest
    finally:
        keras.config.set_dtype_policy("float32")


opt = keras.optimizers
CASES = {
    "adam": lambda: classifier("adam"),
    "adam_amsgrad": lambda: classifier(opt.Adam(amsgrad=True)),
    "sgd_momentum": lambda: classifier(opt.SGD(0.1, momentum=0.9, nesterov=True)),
    "adamw_clipnorm": lambda: classifier(opt.AdamW(0.01, clipnorm=0.5)),
    "adamw_global_clipnorm": lambda: classifier(opt.AdamW(0.01, global_clipnorm=0.5)),
    "clipvalue": lambda: classifier(opt.SGD(0.1, clipvalue=0.01)),
    "rmsprop": lambda: classifier(opt.RMSprop(0.01, centered=True)),
    "adadelta": lambda: classifier(opt.Adadelta(1.0)),
    "adagrad": lambda: classifier(opt.Adagrad(0.1)),
    "adamax": lambda: classifier(opt.Adamax(0.01)),
    "lion": lambda: classifier(opt.Lion(0.001)),
    "adafactor": lambda: classifier(opt.Adafactor(0.01)),
    "muon": lambda: classifier(opt.Muon(0.01)),
    "nadam": lambda: classifier(opt.Nadam(0.01)),
    "ftrl": lambda: classifier(opt.Ftrl(0.01)),
    "dropout": lambda: classifier("adam", layers.Dropout(0.5)),
    "dropout_seeded": lambda: classifier("adam", layers.Dropout(0.5, seed=7)),
    "batch_norm": lambda: classifier("adam", layers.BatchNormalization()),
    "noise": lambda: classifier("adam", layers.GaussianNoise(0.2), layers.GaussianDropout(0.2)),
    "noise_seeded": lambda: classifier("adam", layers.GaussianNoise(0.2, seed=3), layers.AlphaDropout(0.2, seed=4)),
    "accumulation": lambda: classifier(opt.Adam(gradient_accumulation_steps=3)),
    "ema": lambda: classifier(opt.SGD(0.1, use_ema=True, ema_overwrite_frequency=3)),
    "ema_accumulation": lambda: classifier(
        opt.AdamW(0.01, use_ema=True, ema_overwrite_frequency=2, gradient_accumulation_steps=2)
    ),
    "cosine_warmup": lambda: classifier(schedule()),
    "mixed_float16": lambda: with_policy("mixed_float16"),
    "mixed_bfloat16": lambda: with_policy("mixed_bfloat16"),
    "loss_scale_overflow": fast_growing_scale,
    "l2_add_loss": lambda: classifier("adam", Activity(), l2=0.01),
    "frozen": frozen,
    "two_in_two_out": two_in_two_out,
    "sample_weight": lambda: (*classifier("adam")[:3], WEIGHTS),
    "own_step": lambda: compiled(OwnStep(), X, TARGETS, None, metrics=()),
    "lstm": lambda: sequence(layers.LSTM),
    "gru": lambda: sequence(layers.GRU),
    "attention": attention,
    "convolution": convolution,
    "augmentation": lambda: convolution(layers.RandomFlip(seed=1), layers.RandomRotation(0.1, seed=2)),
    "auc": lambda: compiled(
        keras.Sequential([keras.Input((12,)), layers.Dense(1, activation="sigmoid")]),
        X,
        BINARY,
        "binary_crossentropy",
        metrics=[keras.metrics.AUC(), keras.metrics.Precision(), keras.metrics.F1Score()],
    ),
    "hinge": lambda: compiled(keras.Sequential([keras.Input((12,)), layers.Dense(1)]), X, BINARY, "hinge"),
    "constraint": lambda: compiled(
        keras.Sequential([keras.Input((12,)), layers.Dense(1, kernel_constraint="max_norm")]), X, TARGETS, "mse"
    ),
    "huber_r2": lambda: compiled(
        keras.Sequential([keras.Input((12,)), layers.Dense(1)]), X, TARGETS, "huber", metrics=[keras.metrics.R2Score()]
    ),
}
# Nadam reads a product on the host.
EAGER = {"nadam"}


def built(case):
    keras.backend.clear_session()
    keras.utils.set_random_seed(11)
    model, x, y, weights = CASES[case]()
    return model, x, y, weights


def variables_of(model):
    return [*model.variables, *model.optimizer.variables, *[v for m in model.metrics for v in m.variables]]


def train(model, x, y, weights, epochs):
    """What the conductor does, for unshuffled data."""
    engine = TorchEngine()
    adapter = keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter(x, y, weights, batch_size=BATCH)
    first = keras.tree.map_structure(lambda a: a[:BATCH], (x, y, weights), none_is_leaf=False)
    model._symbolic_build(data_batch=first)
    model.optimizer.build(model.trainable_variables)
    program = engine.prepare(model, "train", engine.place(adapter._inputs), ROWS, BATCH)
    history = []
    for _ in range(epochs):
        model.reset_metrics()
        engine.begin_epoch(model, "train")
        program.begin_pass(np.arange(ROWS))
        logs = program.run(0, 2, True) + program.run(2, -(-ROWS // BATCH), False)
        program.end_pass()
        engine.end_epoch(model, "train")
        history.append({k: float(v) for k, v in model._get_metrics_result_or_logs(logs[-1]).items()})
    model.optimizer.finalize_variable_values(model.trainable_weights)
    return program, history


@pytest.mark.parametrize("case", CASES)
def test_ends_where_stock_fit_ends(case):
    stock, x, y, weights = built(case)
    stock._symbolic_build(data_batch=keras.tree.map_structure(lambda a: a[:BATCH], (x, y, weights), none_is_leaf=False))
    state = torch.get_rng_state()
    # Keras' DataLoader draws from the generator that Dropout uses; here nothing but the steps shall.
    batches = [
        keras.tree.map_structure(lambda a, i=i: a[i : i + BATCH], (x, y, weights), none_is_leaf=False)
        for i in range(0, ROWS, BATCH)
    ]
    torch.set_rng_state(state)
    expected = []
    stock.optimizer.build(stock.trainable_variables)
    for _ in range(3):
        stock.reset_metrics()
        stock.train()
        for batch in batches:
            batch = keras.tree.map_structure(keras.ops.convert_to_tensor, batch, none_is_leaf=False)
            logs = stock.train_step(tuple(part for part in batch if part is not None))
        expected.append({k: float(v) for k, v in stock._get_metrics_result_or_logs(logs).items()})
        stock.eval()
    stock.optimizer.finalize_variable_values(stock.trainable_weights)
    stock_state = torch.get_rng_state()

    model, x, y, weights = built(case)
    program, history = train(model, x, y, weights, epochs=3)
    codes = [why.code for why in program.reasons]
    assert bool(codes) == (case in EAGER), program.reasons
    assert history == [pytest.approx(logs, rel=1e-6) for logs in expected]
    for a, b in zip(variables_of(stock), variables_of(model), strict=True):
        a, b = a.value.detach().float().numpy(), b.value.detach().float().numpy()
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6 * np.abs(a).max(initial=0.0))
    assert torch.equal(stock_state, torch.get_rng_state())
