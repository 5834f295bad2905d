"""A tour of callbacks: what is called when, a schedule by epoch, lambdas, checkpoints of the best weights."""

from pathlib import Path

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(149)
x = np.random.normal(size=(2_000, 10)).astype("float32")
y = (x @ np.random.normal(size=(10, 1)) + 0.3 * x[:, :1] ** 2).astype("float32")


class Diary(keras.callbacks.Callback):
    """Counts every method that Keras calls, and notes what the logs hold."""

    def on_train_begin(self, logs=None):
        self.counts = dict.fromkeys(("train batches", "test batches", "epochs"), 0)
        self.keys = set()

    def on_train_batch_end(self, batch, logs=None):
        self.counts["train batches"] += 1
        self.keys |= set(logs)

    def on_test_batch_end(self, batch, logs=None):
        self.counts["test batches"] += 1

    def on_epoch_end(self, epoch, logs=None):
        self.counts["epochs"] += 1
        self.keys |= set(logs)

    def on_train_end(self, logs=None):
        print("Diary:", self.counts, sorted(self.keys))


def schedule(epoch, rate):
    return rate if epoch < 2 else rate * 0.5


losses = []
model = keras.Sequential([keras.Input((10,)), layers.Dense(32, activation="relu"), layers.Dense(1)])
model.compile(keras.optimizers.Adam(5e-3), "mse", metrics=["mae"])
history = model.fit(
    x,
    y,
    batch_size=32,
    epochs=5,
    validation_split=0.2,
    verbose=2,
    callbacks=[
        Diary(),
        keras.callbacks.LearningRateScheduler(schedule, verbose=1),
        keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: print(f"-- epoch {epoch} begins"),
            on_train_batch_end=lambda batch, logs: losses.append(logs["loss"]),
        ),
        keras.callbacks.ModelCheckpoint(
            "best.weights.h5", "val_loss", save_best_only=True, save_weights_only=True, verbose=1
        ),
    ],
)
print("Learning rates:", [round(float(rate), 6) for rate in history.history["learning_rate"]])
print(f"{len(losses)} losses of batches, the last: {losses[-1]:.5f}")
model.load_weights("best.weights.h5")
print("Files:", sorted(path.name for path in Path().iterdir()))
print("Best:", model.evaluate(x[1_600:], y[1_600:], verbose=0))
