"""Structured data: a dict of inputs, numbers normalized from the data, categories embedded."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(37)
rows = 4_000
table = {
    "age": np.random.randint(20, 80, rows).astype("float32"),
    "pressure": np.random.normal(130, 15, rows).astype("float32"),
    "sex": np.random.randint(0, 2, rows),
    "thal": np.random.randint(0, 4, rows),
}
risk = 0.05 * (table["age"] - 50) + 0.03 * (table["pressure"] - 130) + np.array([-1, 0, 1, 2])[table["thal"]]
target = (risk + np.random.normal(0, 1, rows) > 0.5).astype("float32")

inputs = {name: keras.Input((1,), name=name, dtype=values.dtype.name) for name, values in table.items()}
encoded = []
for name in ("age", "pressure"):
    normalize = layers.Normalization(axis=None)
    normalize.adapt(table[name][:3_000])
    encoded.append(normalize(inputs[name]))
for name, size in (("sex", 2), ("thal", 4)):
    encoded.append(layers.Flatten()(layers.Embedding(size, 3)(inputs[name])))
x = layers.Concatenate()(encoded)
x = layers.Dense(32, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-4))(x)
x = layers.Dropout(0.5)(x)
outputs = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])


def part(begin, end):
    return {name: values[begin:end, None] for name, values in table.items()}, target[begin:end]


x_train, y_train = part(0, 3_000)
model.fit(x_train, y_train, epochs=6, batch_size=32, validation_data=part(3_000, rows), verbose=2)
patient = {"age": 61.0, "pressure": 145.0, "sex": 1, "thal": 2}
sample = {name: np.array([[value]], dtype=table[name].dtype) for name, value in patient.items()}
print(f"This patient had a {100 * float(model.predict(sample, verbose=0)[0, 0]):.1f} percent probability.")
