"""The worked example of docs/many.md: twelve learning rates, each on five folds of Fashion-MNIST, as 60 models at once.

    KERAS_BACKEND=jax python benchmarks/folds_and_rates.py --picture many.svg

Prints the frame by learning rate and writes the picture. Stock Keras trains `--stock` of the models, and its time for
all of them is extrapolated from the last, epoch by epoch.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import keras
import numpy as np

import flatout
from flatout.bench.fashion_mnist import load
from flatout.many.splits import KFold


def build(learning_rate: float) -> Any:
    model = keras.Sequential(
        [
            keras.layers.Input((28, 28)),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--stock", type=int, default=1, help="models that stock Keras trains for a comparison")
    parser.add_argument("--picture", help="a file: .svg or .html")
    given = parser.parse_args()
    images = load()
    x, y = images.x_train[: given.rows], images.y_train[: given.rows]
    rates = [float(f"{rate:.1g}") for rate in np.geomspace(3e-5, 3e-2, 12)]
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True)
    began = time.perf_counter()
    many = flatout.fit_many(
        build,
        flatout.grid(learning_rate=rates),
        x,
        y,
        folds=KFold(5, stratified=True),
        callbacks=[stopping],
        epochs=given.epochs,
        batch_size=32,
        seed=1,
    )
    seconds = time.perf_counter() - began
    by_rate = many.frame.groupby("learning_rate")
    print(many)
    print(
        by_rate.agg(
            accuracy=("best_val_accuracy", "mean"),
            spread=("best_val_accuracy", "std"),
            loss=("best_val_loss", "mean"),
            epochs=("epochs", "mean"),
        ).round(4)
    )
    best = many.best("val_accuracy")
    print(f"best: {many.points[best]}, {seconds:.1f} s for {len(many)} models, {sum(many.frame['epochs'])} epochs")
    if given.picture:
        many.plot("val_loss", given.picture)
    if given.stock:
        train, held_out = next(iter(KFold(5, stratified=True).split(x, y)))
        for number in range(given.stock):
            keras.utils.set_random_seed(1)
            model = build(rates[number])
            began = time.perf_counter()
            flatout.fit(
                model,
                x[train],
                y[train],
                validation_data=(x[held_out], y[held_out]),
                epochs=2,
                batch_size=32,
                verbose=0,
                engine="stock",
            )
            an_epoch = (time.perf_counter() - began) / 2
        expected = an_epoch * sum(many.frame["epochs"])
        print(f"stock Keras: {an_epoch:.1f} s an epoch, {expected:.0f} s for all (extrapolated)", end="")
        print(f", {expected / seconds:.0f} times as long")


if __name__ == "__main__":
    main()
