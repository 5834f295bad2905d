"""Training is interrupted and goes on where it was: `BackupAndRestore`."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(157)
x = np.random.normal(size=(1_600, 8)).astype("float32")
y = np.tanh(x[:, :1]) * x[:, 1:2]


class PowerCut(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 3:
            raise RuntimeError("the lights went out")


def build():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(32, activation="relu"), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    return model


backup = keras.callbacks.BackupAndRestore("backup")
model = build()
try:
    model.fit(x, y, batch_size=32, epochs=6, callbacks=[backup, PowerCut()], verbose=2)
except RuntimeError as error:
    print("Interrupted:", error)

# As in a new process: another model, which finds what the first one left.
again = build()
history = again.fit(x, y, batch_size=32, epochs=6, callbacks=[keras.callbacks.BackupAndRestore("backup")], verbose=2)
print("Epochs after the interruption:", history.epoch)
print("Steps of the optimizer:", int(keras.ops.convert_to_numpy(again.optimizer.iterations)))
print("Loss:", again.evaluate(x, y, verbose=0))
