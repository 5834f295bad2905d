"""Support tickets: several inputs, several outputs, a loss and a weight for each (the functional API's own example)."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(53)
WORDS, TAGS, DEPARTMENTS, TICKETS = 200, 8, 4, 1_280

title = keras.Input((10,), name="title", dtype="int32")
body = keras.Input((30,), name="body", dtype="int32")
tags = keras.Input((TAGS,), name="tags")
title_features = layers.GRU(16)(layers.Embedding(WORDS, 16)(title))
body_features = layers.GlobalMaxPooling1D()(layers.Embedding(WORDS, 16)(body))
x = layers.concatenate([title_features, body_features, tags])
priority = layers.Dense(1, name="priority")(x)
department = layers.Dense(DEPARTMENTS, name="department")(x)
model = keras.Model([title, body, tags], {"priority": priority, "department": department})

model.compile(
    optimizer=keras.optimizers.RMSprop(1e-3),
    loss={
        "priority": keras.losses.BinaryCrossentropy(from_logits=True),
        "department": keras.losses.CategoricalCrossentropy(from_logits=True),
    },
    metrics={"priority": [keras.metrics.BinaryAccuracy(threshold=0.0)], "department": ["accuracy"]},
    loss_weights={"priority": 1.0, "department": 0.2},
)

data = {
    "title": np.random.randint(WORDS, size=(TICKETS, 10)),
    "body": np.random.randint(WORDS, size=(TICKETS, 30)),
    "tags": np.random.randint(2, size=(TICKETS, TAGS)).astype("float32"),
}
targets = {
    "priority": (data["tags"][:, :2].sum(axis=1, keepdims=True) + (data["title"][:, :1] > 150) > 1).astype("float32"),
    "department": keras.utils.to_categorical(data["body"][:, 0] % DEPARTMENTS, DEPARTMENTS),
}
history = model.fit(data, targets, epochs=4, batch_size=32, validation_split=0.1, verbose=2)
print("Logged:", sorted(history.history))
predictions = model.predict(data, batch_size=128, verbose=0)
print({name: values.shape for name, values in predictions.items()})
