"""When the loss stops falling: first a lower learning rate, then the end, with the best weights restored."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(151)
x = np.random.uniform(-2, 2, (1_500, 1)).astype("float32")
y = (np.sin(3 * x) + np.random.normal(0, 0.3, x.shape)).astype("float32")

model = keras.Sequential(
    [keras.Input((1,)), layers.Dense(64, activation="relu"), layers.Dense(32, "relu"), layers.Dense(1)]
)
model.compile(optimizer=keras.optimizers.RMSprop(0.02), loss="mse", metrics=["mae"])
callbacks = [
    keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.3, patience=1, min_lr=1e-4, verbose=1),
    keras.callbacks.EarlyStopping(
        monitor="val_loss", patience=4, restore_best_weights=True, start_from_epoch=2, verbose=1
    ),
]
history = model.fit(x, y, batch_size=25, epochs=20, validation_split=0.2, callbacks=callbacks)

rates = [float(rate) for rate in history.history["learning_rate"]]
print("Epochs:", len(rates))
print("Learning rates:", sorted({round(rate, 6) for rate in rates}, reverse=True))
best = min(history.history["val_loss"])
restored = model.evaluate(x[1_200:], y[1_200:], batch_size=25, verbose=0)[0]
print(f"Best validation loss {best:.6f}, of the restored weights {restored:.6f}")
