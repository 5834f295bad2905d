"""Mixed precision: float16 inside, float32 variables, and a loss that is scaled by itself."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(173)
keras.mixed_precision.set_global_policy("mixed_float16")

x = np.random.normal(size=(2_000, 20)).astype("float32")
y = np.argmax(x[:, :5] * x[:, 5:10], axis=1)

inputs = keras.Input((20,))
hidden = layers.Dense(64, activation="relu", name="dense_1")(inputs)
hidden = layers.Dense(64, activation="relu", name="dense_2")(hidden)
# The last activation in float32, as the guide advises.
outputs = layers.Activation("softmax", dtype="float32")(layers.Dense(5)(hidden))
model = keras.Model(inputs, outputs)
first = model.get_layer("dense_1")
print("Compute dtype:", first.compute_dtype, "variable dtype:", first.variable_dtype)

model.compile(keras.optimizers.RMSprop(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
print("Optimizer:", type(model.optimizer).__name__)
history = model.fit(x[:1_600], y[:1_600], batch_size=32, epochs=4, validation_data=(x[1_600:], y[1_600:]), verbose=2)
print("Test accuracy:", history.history["val_accuracy"][-1])
print("Dtype of predictions:", model.predict(x[:2], verbose=0).dtype)
