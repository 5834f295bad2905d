"""Save in the middle of the training, load, and go on: the same as if nothing had happened."""

import json

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(191)
x = np.random.normal(size=(1_600, 6)).astype("float32")
y = np.prod(x[:, :2], axis=1, keepdims=True)


def build():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), name="six_numbers")
    outputs = layers.Dense(1)(layers.Dense(40, activation="elu")(inputs))
    model = keras.Model(inputs, outputs, name="product")
    model.compile(keras.optimizers.Adam(1e-2, clipnorm=1.0), "mse", metrics=["mae"])
    return model


options = {"batch_size": 32, "shuffle": False, "verbose": 0}
whole = build()
at_once = whole.fit(x, y, epochs=6, **options).history["loss"]

part = build()
first = part.fit(x, y, epochs=3, **options).history["loss"]
part.save("half.keras")
part.save_weights("half.weights.h5")
loaded = keras.models.load_model("half.keras")
second = loaded.fit(x, y, initial_epoch=3, epochs=6, **options)
print("Epochs after loading:", second.epoch)
for epoch, (one, other) in enumerate(zip(at_once, first + second.history["loss"], strict=True), start=1):
    print(f"epoch {epoch}: {one:.6f} at once, {other:.6f} in two parts")

# Architecture and weights apart, and a model made of parts of another.
rebuilt = keras.models.model_from_json(loaded.to_json())
rebuilt.load_weights("half.weights.h5")
print("Layers:", [layer["class_name"] for layer in json.loads(rebuilt.to_json())["config"]["layers"]])
hidden = keras.Model(loaded.input, loaded.layers[1].output)
print("Hidden features:", hidden.predict(x, verbose=0).shape)
print(
    "Same as the saved half:",
    np.array_equal(rebuilt.predict(x, verbose=0), keras.models.load_model("half.keras").predict(x, verbose=0)),
)
