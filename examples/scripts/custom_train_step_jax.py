"""`train_step` of our own in JAX: gradients are clipped to a norm, which is reported as a metric beside the loss."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from jax import numpy as jnp
from keras import layers

keras.utils.set_random_seed(109)


class ClippedModel(keras.Model):
    def train_step(self, state, data):
        trainable, non_trainable, optimizer_variables, metrics_variables = state
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)

        def compute_loss_and_updates(trainable, non_trainable):
            predicted, non_trainable = self.stateless_call(trainable, non_trainable, x, training=True)
            loss = jnp.mean((predicted - y) ** 2 if sample_weight is None else sample_weight * (predicted - y) ** 2)
            return loss, (predicted, non_trainable)

        gradients_of = jax.value_and_grad(compute_loss_and_updates, has_aux=True)
        (loss, (predicted, non_trainable)), gradients = gradients_of(trainable, non_trainable)
        norm = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in gradients))
        gradients = [gradient * jnp.minimum(1.0, 0.5 / norm) for gradient in gradients]
        trainable, optimizer_variables = self.optimizer.stateless_apply(optimizer_variables, gradients, trainable)

        logs, updated = {}, []
        for metric in self.metrics:
            own = metrics_variables[len(updated) : len(updated) + len(metric.variables)]
            if metric.name == "loss":
                own = metric.stateless_update_state(own, loss)
            elif metric.name == "gradient_norm":
                own = metric.stateless_update_state(own, norm)
            else:
                own = metric.stateless_update_state(own, y, predicted)
            result = metric.stateless_result(own)
            logs.update(result if isinstance(result, dict) else {metric.name: result})
            updated += own
        return logs, (trainable, non_trainable, optimizer_variables, updated)


x = np.random.normal(size=(4_000, 10)).astype("float32")
y = (x[:, :1] * 3 + np.random.standard_t(2, (4_000, 1))).astype("float32")
inputs = keras.Input((10,))
outputs = layers.Dense(1)(layers.BatchNormalization()(layers.Dense(32, activation="relu")(inputs)))
model = ClippedModel(inputs, outputs)
model.gradient_norm = keras.metrics.Mean(name="gradient_norm")
model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
history = model.fit(x, y, batch_size=32, epochs=4, verbose=2)
print("Logged:", sorted(history.history))
print("Prediction for zeros:", np.round(model.predict(np.zeros((1, 10), "float32"), verbose=0), 3).tolist())
