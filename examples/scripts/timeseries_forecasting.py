"""Weather forecasting: windows of a series by `timeseries_dataset_from_array`, an LSTM, early stopping, a baseline."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(23)
hours = np.arange(4_000)
temperature = 10 + 8 * np.sin(2 * np.pi * hours / 24) + 5 * np.sin(2 * np.pi * hours / 700)
temperature += np.cumsum(np.random.normal(0, 0.1, len(hours)))
pressure = 1_000 - 0.5 * np.roll(temperature, 6) + np.random.normal(0, 1, len(hours))
features = np.stack([temperature, pressure], axis=1).astype("float32")

split = 3_000
mean, deviation = features[:split].mean(axis=0), features[:split].std(axis=0)
features = (features - mean) / deviation
PAST, FUTURE = 48, 6


def windows(part):
    return keras.utils.timeseries_dataset_from_array(
        part[: -PAST - FUTURE],
        part[PAST + FUTURE :, 0],
        sequence_length=PAST // 2,
        sampling_rate=2,
        batch_size=64,
    )


train, validation = windows(features[:split]), windows(features[split:])
for batch, targets in train.take(1):
    print("Input shape:", tuple(batch.shape), "target shape:", tuple(targets.shape))

inputs = keras.Input((PAST // 2, 2))
outputs = layers.Dense(1)(layers.LSTM(24)(inputs))
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.Adam(3e-3), loss="mse", metrics=["mae"])
stop = keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0, patience=2)
history = model.fit(train, epochs=5, validation_data=validation, callbacks=[stop], verbose=2)

naive = np.mean(np.abs(features[split + PAST + FUTURE :, 0] - features[split + PAST : -FUTURE, 0]))
print(f"Mean error: {min(history.history['val_mae']):.4f}; of a forecast that nothing changes: {naive:.4f}")
