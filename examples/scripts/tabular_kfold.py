"""House prices: k-fold cross-validation by hand, a new model for each fold, the mean of the last errors."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(43)
rows = 1_200
data = np.random.uniform(0, 1, (rows, 8)).astype("float32")
prices = (20 * data[:, 0] + 30 * data[:, 1] * data[:, 2] - 10 * data[:, 3] ** 2 + 20).astype("float32")
prices += np.random.normal(0, 1, rows).astype("float32")


def build_model():
    model = keras.Sequential(
        [layers.Dense(64, activation="relu"), layers.Dense(64, activation="relu"), layers.Dense(1)]
    )
    model.compile(optimizer="rmsprop", loss="mean_squared_error", metrics=["mean_absolute_error"])
    return model


K = 4
fold = rows // K
histories = []
for number in range(K):
    print(f"Processing fold #{number}")
    keras.backend.clear_session()
    held_out = slice(number * fold, (number + 1) * fold)
    x_val, y_val = data[held_out], prices[held_out]
    x_train = np.concatenate([data[: held_out.start], data[held_out.stop :]])
    y_train = np.concatenate([prices[: held_out.start], prices[held_out.stop :]])
    mean, deviation = x_train.mean(axis=0), x_train.std(axis=0)
    model = build_model()
    history = model.fit(
        (x_train - mean) / deviation,
        y_train,
        validation_data=((x_val - mean) / deviation, y_val),
        epochs=6,
        batch_size=16,
        verbose=0,
    )
    histories.append(history.history["val_mean_absolute_error"])

for epoch, errors in enumerate(np.array(histories).T, start=1):
    print(f"epoch {epoch}: mean error {errors.mean():.4f} (from {errors.min():.4f} to {errors.max():.4f})")
