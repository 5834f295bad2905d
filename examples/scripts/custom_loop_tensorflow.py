"""A training loop from scratch in TensorFlow: GradientTape, a tf.function, tf.data, and validation by hand."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(107)
x = np.random.normal(size=(2_400, 12)).astype("float32")
y = np.digitize(np.sin(2 * x[:, 0]) + x[:, 1], [-0.7, 0.7])
train = tf.data.Dataset.from_tensor_slices((x[:2_000], y[:2_000])).shuffle(2_000, seed=1).batch(32)
validation = tf.data.Dataset.from_tensor_slices((x[2_000:], y[2_000:])).batch(64)

model = keras.Sequential([keras.Input((12,)), layers.Dense(48, activation="swish"), layers.Dense(3)])
optimizer = keras.optimizers.Adam(5e-3)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_metric, validation_metric = (keras.metrics.SparseCategoricalAccuracy() for _ in range(2))


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = loss_fn(y, logits)
    gradients = tape.gradient(loss, model.trainable_weights)
    optimizer.apply(gradients, model.trainable_weights)
    train_metric.update_state(y, logits)
    return loss


for epoch in range(4):
    for batch in train:
        loss = train_step(*batch)
    for inputs, targets in validation:
        validation_metric.update_state(targets, model(inputs, training=False))
    print(
        f"epoch {epoch + 1}: loss {float(loss):.4f}, accuracy {float(train_metric.result()):.4f}, "
        f"of validation {float(validation_metric.result()):.4f}"
    )
    train_metric.reset_state()
    validation_metric.reset_state()

print("The same with fit:")
model.compile("adam", loss_fn, metrics=["accuracy"])
model.fit(train, epochs=5, validation_data=validation, verbose=2)
