"""A subclassed model with its own train_step: a denoising autoencoder, on whichever backend Keras uses.

KERAS_BACKEND=jax python custom_train_step.py
KERAS_BACKEND=torch python -m flatout custom_train_step.py
"""

import keras
import numpy as np
from keras import layers, ops


class Denoiser(keras.Model):
    """Adds noise to its input while training and learns to take it away."""

    def __init__(self, width=64):
        super().__init__()
        self.noise = layers.GaussianNoise(0.3)
        self.encode = keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(8)])
        self.decode = keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(width)])
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def call(self, x, training=False):
        return self.decode(self.encode(self.noise(x, training=training)))

    def train_step(self, *arguments):
        # Each backend takes gradients in its own way, as in Keras' guides to custom training steps.
        return getattr(self, f"{keras.backend.backend()}_train_step")(*arguments)

    def tensorflow_train_step(self, data):
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self(data, training=True) - data))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def torch_train_step(self, data):
        import torch

        self.zero_grad()
        loss = ops.mean(ops.square(self(data, training=True) - data))
        loss.backward()
        gradients = [variable.value.grad for variable in self.trainable_variables]
        with torch.no_grad():
            self.optimizer.apply(gradients, self.trainable_variables)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def jax_train_step(self, state, data):
        import jax

        trainable, non_trainable, optimizer_variables, metrics_variables = state

        def compute_loss(trainable, non_trainable):
            restored, non_trainable = self.stateless_call(trainable, non_trainable, data, training=True)
            return ops.mean(ops.square(restored - data)), non_trainable

        compute_gradients = jax.value_and_grad(compute_loss, has_aux=True)
        (loss, non_trainable), gradients = compute_gradients(trainable, non_trainable)
        trainable, optimizer_variables = self.optimizer.stateless_apply(optimizer_variables, gradients, trainable)
        metrics_variables = self.loss_tracker.stateless_update_state(metrics_variables, loss)
        logs = {"loss": self.loss_tracker.stateless_result(metrics_variables)}
        return logs, (trainable, non_trainable, optimizer_variables, metrics_variables)


keras.utils.set_random_seed(0)
basis = np.random.normal(size=(8, 64)).astype("float32")
signals = np.random.normal(size=(8_000, 8)).astype("float32") @ basis / 3

model = Denoiser()
model.compile(optimizer=keras.optimizers.Adam(1e-3))
history = model.fit(signals, batch_size=64, epochs=3, verbose=2)

restored = model.predict(signals[:1000], verbose=0)
print(f"training loss: {history.history['loss'][0]:.4f} at first, {history.history['loss'][-1]:.4f} at last")
print(f"error without noise: {np.mean((restored - signals[:1000]) ** 2):.4f}")
