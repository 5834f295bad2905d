"""A `PyDataset` that mixes samples (mixup) and shuffles itself after each epoch."""

import math

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(127)


class Mixup(keras.utils.PyDataset):
    def __init__(self, x, y, batch_size, alpha=0.2, **options):
        super().__init__(**options)
        self.x, self.y, self.batch_size, self.alpha = x, y, batch_size, alpha
        self.order = np.arange(len(x))
        self.epochs = 0

    def __len__(self):
        return math.ceil(len(self.x) / self.batch_size)

    def __getitem__(self, index):
        rows = self.order[index * self.batch_size : (index + 1) * self.batch_size]
        random = np.random.default_rng([self.epochs, index])
        share = random.beta(self.alpha, self.alpha, (len(rows), 1)).astype("float32")
        partners = random.permutation(rows)
        return (
            share * self.x[rows] + (1 - share) * self.x[partners],
            share * self.y[rows] + (1 - share) * self.y[partners],
        )

    def on_epoch_end(self):
        self.epochs += 1
        self.order = np.random.default_rng(self.epochs).permutation(len(self.x))


centres = np.random.normal(size=(5, 20))
labels = np.random.randint(0, 5, 3_000)
x = (centres[labels] + np.random.normal(0, 1.2, (3_000, 20))).astype("float32")
y = keras.utils.to_categorical(labels, 5)

dataset = Mixup(x[:2_500], y[:2_500], 32)
model = keras.Sequential(
    [layers.Dense(64, activation="relu"), layers.Dropout(0.2), layers.Dense(5, activation="softmax")]
)
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
history = model.fit(dataset, epochs=5, validation_data=(x[2_500:], y[2_500:]), verbose=2)
print("The data set has seen", dataset.epochs, "epochs")
print("Validation accuracy:", [round(value, 4) for value in history.history["val_accuracy"]])
