"""A training loop from scratch in JAX: a stateless step, compiled, over batches; evaluated by Keras at the end."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(101)
x = np.random.normal(size=(4_000, 16)).astype("float32")
y = np.argmax(x[:, :3] + x[:, 3:6] * x[:, 6:9], axis=1).astype("int32")

inputs = keras.Input((16,))
hidden = layers.Dropout(0.1)(layers.Dense(64, activation="relu")(inputs))
model = keras.Model(inputs, layers.Dense(3)(hidden))
optimizer = keras.optimizers.Adam(3e-3)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
accuracy = keras.metrics.SparseCategoricalAccuracy()


def compute_loss(trainable, non_trainable, metric, x, y):
    predicted, non_trainable = model.stateless_call(trainable, non_trainable, x, training=True)
    metric = accuracy.stateless_update_state(metric, y, predicted)
    return loss_fn(y, predicted), (non_trainable, metric)


gradients_of = jax.value_and_grad(compute_loss, has_aux=True)


@jax.jit
def train_step(state, x, y):
    trainable, non_trainable, optimizer_variables, metric = state
    (loss, (non_trainable, metric)), gradients = gradients_of(trainable, non_trainable, metric, x, y)
    trainable, optimizer_variables = optimizer.stateless_apply(optimizer_variables, gradients, trainable)
    return loss, (trainable, non_trainable, optimizer_variables, metric)


optimizer.build(model.trainable_variables)
state = (
    [variable.value for variable in model.trainable_variables],
    [variable.value for variable in model.non_trainable_variables],
    [variable.value for variable in optimizer.variables],
    [variable.value for variable in accuracy.variables],
)
for epoch in range(4):
    order = np.random.permutation(3_200)
    for step in range(100):
        rows = order[32 * step : 32 * step + 32]
        loss, state = train_step(state, x[rows], y[rows])
        if step % 50 == 0:
            print(f"epoch {epoch + 1}, step {step}: training loss {float(loss):.4f}")
    print(f"epoch {epoch + 1}: training accuracy {float(accuracy.stateless_result(state[3])):.4f}")
    state = (*state[:3], [variable.value * 0 for variable in accuracy.variables])

for variable, value in zip(model.trainable_variables, state[0], strict=True):
    variable.assign(value)
model.compile(loss=loss_fn, metrics=["accuracy"])
print("Test loss and accuracy:", model.evaluate(x[3_200:], y[3_200:], verbose=0))
