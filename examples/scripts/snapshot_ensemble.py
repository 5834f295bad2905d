"""A snapshot ensemble: the rate restarts three times, each minimum is kept, and the snapshots vote."""

import math

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(199)
CYCLE, EPOCHS = 2, 6
centres = np.random.normal(size=(6, 14))
labels = np.random.randint(0, 6, 3_000)
x = (centres[labels] + np.random.normal(0, 1.3, (3_000, 14))).astype("float32")


class Snapshots(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.weights = []

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % CYCLE == 0:
            self.weights.append(self.model.get_weights())


model = keras.Sequential(
    [keras.Input((14,)), layers.Dense(64, activation="relu"), layers.Dense(6, activation="softmax")]
)
model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
snapshots = Snapshots()
cosine = keras.callbacks.LearningRateScheduler(
    lambda epoch: 0.05 * (1 + math.cos(math.pi * (epoch % CYCLE) / CYCLE)) + 1e-3
)
model.fit(x[:2_400], labels[:2_400], batch_size=24, epochs=EPOCHS, callbacks=[cosine, snapshots], verbose=2)

votes = []
for number, weights in enumerate(snapshots.weights, start=1):
    model.set_weights(weights)
    predicted = model.predict(x[2_400:], verbose=0)
    votes.append(predicted)
    print(f"snapshot {number}: accuracy {np.mean(predicted.argmax(axis=1) == labels[2_400:]):.4f}")
together = np.mean(votes, axis=0).argmax(axis=1)
print(f"together: accuracy {np.mean(together == labels[2_400:]):.4f}")
