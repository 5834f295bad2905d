"""A beta-VAE whose beta is a global that a callback changes, and a loss that reads it, as many tutorials have it.

On torch the step sees the new value at once; jax and tensorflow have compiled the old one into theirs.
"""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(67)
beta = 0.0
LATENT, WIDTH = 3, 16


class Sampling(layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, parameters):
        mean, log_variance = parameters[:, :LATENT], parameters[:, LATENT:]
        return mean + ops.exp(log_variance / 2) * keras.random.normal(ops.shape(mean), seed=self.seeds)


def kl_loss(_, parameters):
    mean, log_variance = parameters[:, :LATENT], parameters[:, LATENT:]
    return beta * -0.5 * ops.mean(1 + log_variance - ops.square(mean) - ops.exp(log_variance), axis=-1)


def anneal(epoch, logs=None):
    global beta
    beta = min(1.0, 0.25 * epoch)


inputs = keras.Input((WIDTH,))
parameters = layers.Dense(2 * LATENT, name="parameters")(layers.Dense(32, activation="relu")(inputs))
code = Sampling()(parameters)
outputs = layers.Dense(WIDTH, name="rebuilt")(layers.Dense(32, activation="relu")(code))
model = keras.Model(inputs, {"rebuilt": outputs, "parameters": parameters})
model.compile("adam", loss={"rebuilt": "mse", "parameters": kl_loss})

x = (np.random.normal(size=(3_000, 3)) @ np.random.normal(size=(3, WIDTH))).astype("float32")
unused = np.zeros((len(x), 2 * LATENT), "float32")
history = model.fit(
    x,
    {"rebuilt": x, "parameters": unused},
    batch_size=32,
    epochs=6,
    callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=anneal)],
    verbose=2,
)
print("KL losses:", [round(value, 4) for value in history.history["parameters_loss"]])
