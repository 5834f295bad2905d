"""The step by hand: `train_on_batch`, `test_on_batch` and `predict_on_batch`, then `fit` with the same model."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(211)
x = np.random.normal(size=(1_280, 9)).astype("float32")
y = np.linalg.norm(x[:, :3], axis=1, keepdims=True).astype("float32")

model = keras.Sequential([keras.Input((9,)), layers.Dense(32, activation="softplus"), layers.Dense(1)])
model.compile(keras.optimizers.Adam(5e-3), loss="mse", metrics=["mae"])
for epoch in range(2):
    order = np.random.permutation(1_024)
    model.reset_metrics()
    for rows in np.split(order, 32):
        logs = model.train_on_batch(x[rows], y[rows], return_dict=True)
    print(f"epoch {epoch + 1}:", {name: round(float(value), 4) for name, value in logs.items()})
model.reset_metrics()
print("Tested:", [round(float(value), 4) for value in model.test_on_batch(x[1_024:], y[1_024:])])

history = model.fit(x[:1_024], y[:1_024], batch_size=16, epochs=6, initial_epoch=2, verbose=2)
print("Epochs of fit:", history.epoch)
print("Predicted:", np.round(model.predict_on_batch(x[1_024:1_027])[:, 0], 3).tolist())
