"""A variational autoencoder; a callback raises the weight of the KL term from 0 to 1 (a variable of the model)."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(61)


class Sampling(layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * noise


class VAE(keras.Model):
    def __init__(self, width, latent=2, **options):
        super().__init__(**options)
        self.hidden = layers.Dense(48, activation="relu")
        self.mean, self.log_variance = layers.Dense(latent), layers.Dense(latent)
        self.sampling = Sampling()
        self.decoder = keras.Sequential([layers.Dense(48, activation="relu"), layers.Dense(width)])
        self.kl_weight = self.add_weight(name="kl_weight", initializer="zeros", trainable=False)
        self.kl_tracker = keras.metrics.Mean(name="kl")

    def call(self, x):
        hidden = self.hidden(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        return {
            "rebuilt": self.decoder(self.sampling([mean, log_variance])),
            "mean": mean,
            "log_variance": log_variance,
        }

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        mean, log_variance = y_pred["mean"], y_pred["log_variance"]
        kl = -0.5 * ops.sum(1 + log_variance - ops.square(mean) - ops.exp(log_variance), axis=1)
        self.kl_tracker.update_state(kl)
        rebuilding = ops.sum(ops.square(x - y_pred["rebuilt"]), axis=1)
        return ops.mean(rebuilding + self.kl_weight * kl)


class Annealing(keras.callbacks.Callback):
    def __init__(self, epochs):
        super().__init__()
        self.epochs = epochs

    def on_epoch_begin(self, epoch, logs=None):
        self.model.kl_weight.assign(min(1.0, epoch / self.epochs))
        print(f"KL weight: {float(ops.convert_to_numpy(self.model.kl_weight)):.2f}")


angles = np.random.uniform(0, 2 * np.pi, (4_000, 1))
phases = np.linspace(0, np.pi, 24)[None]
x = (np.sin(angles + phases) + np.random.normal(0, 0.1, (4_000, 24))).astype("float32")

vae = VAE(width=24)
vae.compile(optimizer=keras.optimizers.Adam(2e-3))
history = vae.fit(x, batch_size=64, epochs=6, callbacks=[Annealing(4)], verbose=2)
print("KL divergence:", [round(value, 3) for value in history.history["kl"]])
generated = ops.convert_to_numpy(vae.decoder(np.zeros((1, 2), "float32")))[0]
print("Decoded from zero:", np.round(generated[:6], 3).tolist())
