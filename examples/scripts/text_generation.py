"""Character-level text generation: after each epoch a callback lets the model write a line."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(17)
TEXT = (
    "the sea is calm tonight the tide is full the moon lies fair upon the straits on the coast the light gleams "
    "and is gone the cliffs stand glimmering and vast out in the tranquil bay come to the window sweet is the air "
) * 12
characters = sorted(set(TEXT))
index = {character: number for number, character in enumerate(characters)}
LENGTH, STEP = 20, 2
starts = range(0, len(TEXT) - LENGTH - 1, STEP)
x = np.array([[index[c] for c in TEXT[start : start + LENGTH]] for start in starts])
y = np.array([index[TEXT[start + LENGTH]] for start in starts])
print(f"{len(x)} sequences of {len(characters)} characters")


class WriteALine(keras.callbacks.Callback):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature
        self.random = np.random.default_rng(0)

    def on_epoch_end(self, epoch, logs=None):
        if epoch % 3 != 2:
            return
        text = TEXT[:LENGTH]
        for _ in range(20):
            window = np.array([[index[c] for c in text[-LENGTH:]]])
            chances = self.model.predict(window, verbose=0)[0].astype("float64")
            chances = np.exp(np.log(chances + 1e-9) / self.temperature)
            text += characters[self.random.choice(len(characters), p=chances / chances.sum())]
        print(f"after epoch {epoch + 1}: {text!r}")


model = keras.Sequential(
    [
        keras.Input((LENGTH,), dtype="int32"),
        layers.Embedding(len(characters), 12),
        layers.GRU(32),
        layers.Dense(len(characters), activation="softmax"),
    ]
)
model.compile(keras.optimizers.RMSprop(0.01), "sparse_categorical_crossentropy")
model.fit(x, y, batch_size=64, epochs=6, callbacks=[WriteALine(0.5)], verbose=2)
