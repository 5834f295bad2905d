"""A GAN with its own train_step, for the torch backend: two networks, two optimizers."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from keras import layers

keras.utils.set_random_seed(89)
LATENT = 8


class GAN(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.seed_generator = keras.random.SeedGenerator(1337)
        self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
        self.g_loss_tracker = keras.metrics.Mean(name="g_loss")
        self.built = True

    @property
    def metrics(self):
        return [self.d_loss_tracker, self.g_loss_tracker]

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    def train_step(self, real):
        if isinstance(real, (tuple, list)):
            real = real[0]
        count = real.shape[0]
        noise = keras.random.normal((count, LATENT), seed=self.seed_generator)
        fake = self.generator(noise)
        ones, zeros = torch.ones((count, 1), device=real.device), torch.zeros((count, 1), device=real.device)
        labels = torch.concatenate([ones, zeros], axis=0)
        labels = labels + 0.05 * keras.random.uniform(labels.shape, seed=self.seed_generator)

        self.zero_grad()
        d_loss = self.loss_fn(labels, self.discriminator(torch.concatenate([fake.detach(), real], axis=0)))
        d_loss.backward()
        weights = self.discriminator.trainable_weights
        with torch.no_grad():
            self.d_optimizer.apply([weight.value.grad for weight in weights], weights)

        noise = keras.random.normal((count, LATENT), seed=self.seed_generator)
        self.zero_grad()
        g_loss = self.loss_fn(zeros, self.discriminator(self.generator(noise)))
        g_loss.backward()
        weights = self.generator.trainable_weights
        with torch.no_grad():
            self.g_optimizer.apply([weight.value.grad for weight in weights], weights)

        self.d_loss_tracker.update_state(d_loss)
        self.g_loss_tracker.update_state(g_loss)
        return {"d_loss": self.d_loss_tracker.result(), "g_loss": self.g_loss_tracker.result()}


angles = np.random.uniform(0, 2 * np.pi, 3_200)
ring = np.stack([np.cos(angles), np.sin(angles)], axis=1) + np.random.normal(0, 0.05, (3_200, 2))

discriminator = keras.Sequential(
    [keras.Input((2,)), layers.Dense(32), layers.LeakyReLU(0.2), layers.Dropout(0.2), layers.Dense(1)]
)
generator = keras.Sequential([keras.Input((LATENT,)), layers.Dense(32), layers.LeakyReLU(0.2), layers.Dense(2)])
gan = GAN(discriminator, generator)
gan.compile(keras.optimizers.Adam(3e-3), keras.optimizers.Adam(3e-3), keras.losses.BinaryCrossentropy(from_logits=True))
gan.fit(ring.astype("float32"), epochs=4, batch_size=32, verbose=2)

points = generator.predict(np.random.normal(size=(500, LATENT)).astype("float32"), verbose=0)
print(f"Distance of generated points from the centre: {np.linalg.norm(points, axis=1).mean():.3f}")
