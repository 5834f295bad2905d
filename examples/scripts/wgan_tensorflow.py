"""A Wasserstein GAN with gradient penalty, for the tensorflow backend; a monitor prints samples while it trains."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(97)
LATENT = 8


class WGAN(keras.Model):
    def __init__(self, discriminator, generator, discriminator_steps=2, penalty_weight=10.0):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.discriminator_steps = discriminator_steps
        self.penalty_weight = penalty_weight

    def compile(self, d_optimizer, g_optimizer):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer

    def gradient_penalty(self, real, fake):
        alpha = tf.random.uniform([tf.shape(real)[0], 1], 0.0, 1.0)
        between = real + alpha * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            judged = self.discriminator(between, training=True)
        gradients = tape.gradient(judged, between)
        norms = tf.sqrt(tf.reduce_sum(tf.square(gradients), axis=1) + 1e-12)
        return tf.reduce_mean((norms - 1.0) ** 2)

    def train_step(self, real):
        if isinstance(real, tuple):
            real = real[0]
        count = tf.shape(real)[0]
        for _ in range(self.discriminator_steps):
            noise = tf.random.normal((count, LATENT))
            with tf.GradientTape() as tape:
                fake = self.generator(noise, training=True)
                cost = tf.reduce_mean(self.discriminator(fake, training=True))
                cost -= tf.reduce_mean(self.discriminator(real, training=True))
                d_loss = cost + self.penalty_weight * self.gradient_penalty(real, fake)
            gradients = tape.gradient(d_loss, self.discriminator.trainable_variables)
            self.d_optimizer.apply_gradients(zip(gradients, self.discriminator.trainable_variables, strict=True))
        with tf.GradientTape() as tape:
            fake = self.generator(tf.random.normal((count, LATENT)), training=True)
            g_loss = -tf.reduce_mean(self.discriminator(fake, training=True))
        gradients = tape.gradient(g_loss, self.generator.trainable_variables)
        self.g_optimizer.apply_gradients(zip(gradients, self.generator.trainable_variables, strict=True))
        return {"d_loss": d_loss, "g_loss": g_loss}


class Monitor(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        points = self.model.generator(np.random.normal(size=(200, LATENT)).astype("float32"))
        spread = np.std(points.numpy(), axis=0)
        print(f"epoch {epoch + 1}: spread of generated points {spread[0]:.3f}, {spread[1]:.3f}")


critic = keras.Sequential([keras.Input((2,)), layers.Dense(32, "relu"), layers.Dense(32, "relu"), layers.Dense(1)])
generator = keras.Sequential([keras.Input((LATENT,)), layers.Dense(32, "relu"), layers.Dense(2)])
data = np.random.normal(size=(3_200, 2)) @ np.array([[1.0, 0.5], [0.0, 2.0]])

wgan = WGAN(critic, generator)
wgan.compile(keras.optimizers.Adam(1e-3, beta_1=0.5), keras.optimizers.Adam(1e-3, beta_1=0.5))
wgan.fit(data.astype("float32"), batch_size=32, epochs=4, callbacks=[Monitor()], verbose=2)
print("Spread of the data:", np.round(np.std(data, axis=0), 3).tolist())
