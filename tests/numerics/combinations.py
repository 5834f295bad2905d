"""Models, optimizers and arguments of fit, each a way in which flatout could differ from stock Keras."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import layers, losses, metrics, optimizers, regularizers

ROWS = 203


@dataclass(frozen=True)
class Combination:
    """A model to build and compile, the data and the arguments of fit."""

    name: str
    build: Callable[[], keras.Model]
    arguments: dict[str, Any] = field(default_factory=dict)
    data: Callable[[], dict[str, Any]] = lambda: {"x": features(), "y": labels()}
    floats: str | None = None


def features(width: int = 12) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((ROWS, width)).astype("float32")


def labels(classes: int = 4) -> np.ndarray:
    return np.random.default_rng(2).integers(0, classes, ROWS)


def dense(
    optimizer: Any = "adam", *middle: Any, loss: Any = "sparse_categorical_crossentropy", **compiling: Any
) -> keras.Model:
    inner = middle or (layers.Dense(16, activation="relu"),)
    model = keras.Sequential([layers.Input((12,)), *inner, layers.Dense(4, activation="softmax")])
    compiling.setdefault("metrics", ["accuracy"])
    model.compile(optimizer, loss, **compiling)
    return model


def regular() -> keras.Model:
    return dense(
        "adam",
        layers.Dense(16, kernel_regularizer=regularizers.L2(1e-3), activity_regularizer=regularizers.L1(1e-4)),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Dropout(0.3),
    )


def two_in_two_out() -> keras.Model:
    left, right = layers.Input((12,), name="left"), layers.Input((3,), name="right")
    joined = layers.Concatenate()([layers.Dense(8, activation="tanh")(left), right])
    outputs = {"kind": layers.Dense(4, name="kind")(joined), "size": layers.Dense(1, name="size")(joined)}
    model = keras.Model({"left": left, "right": right}, outputs)
    model.compile(
        optimizers.RMSprop(1e-3),
        loss={"kind": losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"},
        loss_weights={"kind": 1.0, "size": 0.3},
        metrics={"kind": ["accuracy"], "size": ["mae"]},
        weighted_metrics={"size": ["mse"]},
    )
    return model


def two_in_two_out_data() -> dict[str, Any]:
    return {
        "x": {"left": features(), "right": features(3)},
        "y": {"kind": labels(), "size": features(1)},
        "sample_weight": np.linspace(0.2, 1.5, ROWS).astype("float32"),
    }


def frozen() -> keras.Model:
    model = dense("sgd", layers.Dense(16, activation="relu"), layers.Dense(8, activation="relu"))
    model.layers[0].trainable = False
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def with_add_loss() -> keras.Model:
    class Penalty(layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.add_loss(1e-2 * keras.ops.mean(keras.ops.square(inputs)))
            return inputs

    return dense("adam", layers.Dense(16), Penalty(), layers.ReLU())


def schedule() -> keras.Model:
    decay = optimizers.schedules.CosineDecay(1e-3, 40, warmup_target=1e-2, warmup_steps=5)
    return dense(optimizers.SGD(decay, momentum=0.9, nesterov=True))


def averaged() -> keras.Model:
    return dense(optimizers.AdamW(1e-2, global_clipnorm=0.5, use_ema=True, ema_overwrite_frequency=3))


def custom_step() -> keras.Model:
    backend = keras.config.backend()

    class Doubling(keras.Model):
        """Trains on twice the loss; its own train_step, its own metric."""

        def __init__(self, **names: Any):
            super().__init__(**names)
            self.seen = metrics.Mean(name="seen")

        def train_step(self, *arguments: Any) -> Any:
            if backend == "jax":
                logs, state = super().train_step(*arguments)
                return {"twice": logs["loss"] * 2, **logs}, state
            logs = super().train_step(*arguments)
            return {"twice": logs["loss"] * 2, **logs}

        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
        ) -> Any:
            return 2 * super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)

    inputs = layers.Input((12,))
    model = Doubling(inputs=inputs, outputs=layers.Dense(4, activation="softmax")(layers.Dense(8)(inputs)))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def subclassed() -> keras.Model:
    class Small(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = layers.Dense(8, activation="relu"), layers.Dense(4, activation="softmax")

        def call(self, inputs: Any) -> Any:
            return self.last(self.first(inputs))

    model = Small()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def convolution() -> keras.Model:
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25, seed=7),
            layers.Flatten(),
            layers.Dense(4, activation="softmax"),
        ]
    )
    model.compile(optimizers.SGD(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def recurrent() -> keras.Model:
    model = keras.Sequential(
        [
            layers.Input((6,), dtype="int32"),
            layers.Embedding(20, 5),
            layers.LSTM(6),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy", metrics=[metrics.AUC(num_thresholds=20)])
    return model


def accumulating() -> keras.Model:
    return dense(optimizers.Adam(1e-2, gradient_accumulation_steps=3))


COMBINATIONS = [
    Combination("adam", dense),
    Combination("subclassed, unbuilt", subclassed),
    Combination("l2, batch norm, dropout", regular),
    Combination("no shuffle, steps per execution", lambda: dense(steps_per_execution=1), {"shuffle": False}),
    # Left to stock Keras on torch.
    *([] if keras.config.backend() == "torch" else [Combination("shuffle by batch", dense, {"shuffle": "batch"})]),
    Combination("sgd, nesterov, cosine warm-up", schedule),
    Combination("adamw, global clipnorm, moving average", averaged),
    Combination("gradient accumulation", accumulating),
    Combination("clipnorm, weight decay", lambda: dense(optimizers.Lion(1e-3, clipnorm=0.1, weight_decay=1e-2))),
    Combination("two inputs, two outputs, weights", two_in_two_out, data=two_in_two_out_data),
    Combination("frozen layer", frozen),
    Combination("add_loss", with_add_loss),
    Combination("custom train_step, compute_loss", custom_step),
    Combination("class weights, validation split", dense, {"class_weight": {0: 2.0, 2: 0.5}, "validation_split": 0.2}),
    Combination(
        "validation data, every second epoch",
        dense,
        {"validation_data": (features()[:50], labels()[:50]), "validation_freq": 2, "validation_batch_size": 16},
    ),
    Combination("steps per epoch", dense, {"steps_per_epoch": 3, "epochs": 5}),
    Combination("mixed bfloat16", dense, floats="mixed_bfloat16"),
    Combination("mixed float16, loss scaling", dense, floats="mixed_float16"),
    Combination(
        "convolution, seeded dropout", convolution, data=lambda: {"x": features(64).reshape(-1, 8, 8, 1), "y": labels()}
    ),
    Combination(
        "embedding, lstm, auc",
        recurrent,
        data=lambda: {"x": np.random.default_rng(3).integers(0, 20, (ROWS, 6)), "y": labels(2)},
    ),
    Combination(
        "float64 and uint8 arrays",
        dense,
        data=lambda: {"x": features().astype("float64"), "y": labels().astype("uint8")},
    ),
    Combination("one batch larger than the data", dense, {"batch_size": 500}),
]
