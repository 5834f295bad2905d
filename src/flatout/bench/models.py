"""The six models of `flatout bench`, compiled; each is what a Keras tutorial of its kind would write.

This file imports Keras, so it is itself imported only when a workload is built.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

NUMBERS = 13
CATEGORIES = 26
VOCABULARY = 1000
SEQUENCE = 200


def seed() -> keras.Model:
    """784-128-10: the program people learn Keras with."""
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def convnet() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def tabular() -> keras.Model:
    """Click prediction: numbers and categories, each category with its own embedding."""
    numbers = keras.Input((NUMBERS,), name="numbers")
    categories = keras.Input((CATEGORIES,), dtype="int32", name="categories")
    embedded = [layers.Embedding(VOCABULARY, 16)(categories[:, column]) for column in range(CATEGORIES)]
    hidden = layers.Concatenate()([layers.BatchNormalization()(numbers), *embedded])
    for width in (256, 128):
        hidden = layers.Dense(width, activation="relu")(hidden)
        hidden = layers.BatchNormalization()(hidden)
    output = layers.Dense(1, activation="sigmoid")(hidden)
    model = keras.Model({"numbers": numbers, "categories": categories}, output)
    model.compile("adam", "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
    return model


def lstm() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((SEQUENCE,), dtype="int32"),
            layers.Embedding(VOCABULARY, 128),
            layers.Bidirectional(layers.LSTM(64, return_sequences=True)),
            layers.Bidirectional(layers.LSTM(64)),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model


class TokenAndPlace(layers.Layer):
    """Adds the embedding of a token and the embedding of its place."""

    def __init__(self, width: int, **options: Any) -> None:
        super().__init__(**options)
        self.tokens = layers.Embedding(VOCABULARY, width)
        self.places = layers.Embedding(SEQUENCE, width)

    def call(self, inputs: Any) -> Any:
        return self.tokens(inputs) + self.places(ops.arange(SEQUENCE))


def transformer() -> keras.Model:
    """One block, two heads of width 32, as in Keras' text classification example."""
    tokens = keras.Input((SEQUENCE,), dtype="int32")
    hidden = TokenAndPlace(32)(tokens)
    attended = layers.MultiHeadAttention(num_heads=2, key_dim=32)(hidden, hidden)
    hidden = layers.LayerNormalization(epsilon=1e-6)(hidden + layers.Dropout(0.1)(attended))
    fed = layers.Dense(32)(layers.Dense(32, activation="relu")(hidden))
    hidden = layers.LayerNormalization(epsilon=1e-6)(hidden + layers.Dropout(0.1)(fed))
    hidden = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(hidden))
    hidden = layers.Dropout(0.1)(layers.Dense(20, activation="relu")(hidden))
    model = keras.Model(tokens, layers.Dense(2, activation="softmax")(hidden))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _convolution(inputs: Any, channels: int, size: int, stride: int) -> Any:
    convolved = layers.Conv2D(channels, size, stride, padding="same", use_bias=False)(inputs)
    return layers.BatchNormalization()(convolved)


def resnet20() -> keras.Model:
    """He et al. 2015, section 4.2, n = 3: three stages of three blocks, of 16, 32 and 64 channels."""
    inputs = keras.Input((32, 32, 3))
    hidden = layers.ReLU()(_convolution(inputs, 16, 3, 1))
    for stage, channels in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if stage > 0 and block == 0 else 1
            branch = layers.ReLU()(_convolution(hidden, channels, 3, stride))
            branch = _convolution(branch, channels, 3, 1)
            shortcut = hidden if stride == 1 else _convolution(hidden, channels, 1, stride)
            hidden = layers.ReLU()(layers.Add()([branch, shortcut]))
    output = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(hidden))
    model = keras.Model(inputs, output)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
