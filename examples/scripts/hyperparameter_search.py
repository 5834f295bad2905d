"""Random search over hyperparameters in the manner of Keras Tuner: trials, an objective, the best model again."""

import random

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(139)


class HyperParameters:
    def __init__(self, source):
        self.source = source
        self.values = {}

    def Choice(self, name, values):
        return self.values.setdefault(name, self.source.choice(values))

    def Int(self, name, low, high, step):
        return self.values.setdefault(name, self.source.randrange(low, high + 1, step))

    def Boolean(self, name):
        return self.values.setdefault(name, self.source.random() < 0.5)

    def Float(self, name, low, high):
        return self.values.setdefault(name, low * (high / low) ** self.source.random())


def build_model(hp):
    model = keras.Sequential([keras.Input((12,))])
    for number in range(hp.Int("layers", 1, 3, 1)):
        model.add(
            layers.Dense(hp.Int(f"units_{number}", 16, 64, 16), activation=hp.Choice("activation", ["relu", "tanh"]))
        )
    if hp.Boolean("dropout"):
        model.add(layers.Dropout(0.25))
    model.add(layers.Dense(1))
    optimizer = {"adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}[
        hp.Choice("optimizer", ["adam", "rmsprop"])
    ]
    model.compile(optimizer(hp.Float("learning_rate", 1e-4, 1e-2)), "mse", metrics=["mae"])
    return model


x = np.random.uniform(-1, 1, (1_500, 12)).astype("float32")
y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]
source = random.Random(0)
trials = []
for number in range(5):
    hp = HyperParameters(source)
    model = build_model(hp)
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=2)
    history = model.fit(
        x[:1_200], y[:1_200], epochs=4, validation_data=(x[1_200:], y[1_200:]), callbacks=[stop], verbose=0
    )
    score = min(history.history["val_loss"])
    trials.append((score, number, hp))
    print(f"Trial {number}: val_loss {score:.5f} with {hp.values}")

score, number, hp = min(trials)
print(f"Best: trial {number} with {hp.values}")
best = build_model(hp)
best.fit(x, y, epochs=4, verbose=2)
