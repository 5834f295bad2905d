"""A learning-rate finder: the rate grows with every batch until the loss explodes; then a triangle of rates."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(193)
x = np.random.normal(size=(3_200, 10)).astype("float32")
y = np.argmax(x[:, :3] ** 2, axis=1)


def build(rate):
    model = keras.Sequential(
        [keras.Input((10,)), layers.Dense(48, activation="relu"), layers.Dense(3, activation="softmax")]
    )
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class Finder(keras.callbacks.Callback):
    def __init__(self, factor):
        super().__init__()
        self.factor, self.rates, self.losses = factor, [], []

    def on_train_batch_end(self, batch, logs=None):
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        self.rates.append(rate)
        self.losses.append(logs["loss"])
        if logs["loss"] > 4 * min(self.losses):
            self.model.stop_training = True
        self.model.optimizer.learning_rate = rate * self.factor


class Triangle(keras.callbacks.Callback):
    def __init__(self, low, high, period):
        super().__init__()
        self.low, self.high, self.period, self.step = low, high, period, 0

    def on_train_batch_begin(self, batch, logs=None):
        place = abs((self.step / self.period) % 2 - 1)
        self.model.optimizer.learning_rate = self.low + (self.high - self.low) * (1 - place)
        self.step += 1


finder = Finder(1.1)
build(1e-4).fit(x, y, batch_size=32, epochs=2, callbacks=[finder], verbose=0)
best = finder.rates[int(np.argmin(finder.losses))]
print(f"{len(finder.rates)} batches, rates from {finder.rates[0]:.5f} to {finder.rates[-1]:.5f}, best {best:.5f}")

model = build(1e-3)
triangle = Triangle(0.01, 0.1, period=100)
model.fit(x, y, batch_size=32, epochs=4, callbacks=[triangle], verbose=2)
print("Steps:", triangle.step, "last rate:", round(float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)), 5))
