"""A learning rate that is far too high: `TerminateOnNaN` ends the training, and a lower one is tried."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(167)
x = np.random.normal(size=(1_000, 6)).astype("float32") * 10
y = (x @ np.arange(6.0)).astype("float32")

for rate in (10.0, 1e-1, 1e-4):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(16, activation="relu"), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), loss="mse")
    history = model.fit(x, y, batch_size=20, epochs=6, callbacks=[keras.callbacks.TerminateOnNaN()], verbose=0)
    finite = np.isfinite(history.history["loss"])
    print(f"rate {rate}: {len(finite)} epochs, {'all finite' if finite.all() else 'not finite'}")
    if finite.all():
        print(f"loss {history.history['loss'][-1]:.3f}")
        break
