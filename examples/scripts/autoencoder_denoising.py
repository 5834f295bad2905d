"""A denoising autoencoder; its losses go to a CSV file, which is read again at the end."""

import csv
from pathlib import Path

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(71)


def bars(count, size=16):
    images = np.zeros((count, size, size, 1), "float32")
    for image in images:
        if np.random.rand() < 0.5:
            image[np.random.randint(size)] = 1
        else:
            image[:, np.random.randint(size)] = 1
    return images


def noise(images, factor=0.4):
    return np.clip(images + factor * np.random.normal(size=images.shape), 0, 1).astype("float32")


train, test = bars(1_200), bars(200)
noisy_train, noisy_test = noise(train), noise(test)

inputs = keras.Input((16, 16, 1))
x = layers.Conv2D(16, 3, activation="relu", padding="same")(inputs)
x = layers.MaxPooling2D(2, padding="same")(x)
x = layers.Conv2D(16, 3, activation="relu", padding="same")(x)
x = layers.UpSampling2D(2)(x)
outputs = layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x)
autoencoder = keras.Model(inputs, outputs)
autoencoder.compile(optimizer="adam", loss="binary_crossentropy")

print("First, an identity:")
autoencoder.fit(train, train, epochs=2, batch_size=32, callbacks=[keras.callbacks.CSVLogger("log.csv")], verbose=2)
print("Then, denoising:")
autoencoder.fit(
    noisy_train,
    train,
    epochs=3,
    batch_size=32,
    validation_data=(noisy_test, test),
    callbacks=[keras.callbacks.CSVLogger("noise.csv", separator=";")],
    verbose=2,
)
for name, separator in (("log.csv", ","), ("noise.csv", ";")):
    with Path(name).open(newline="") as file:
        for row in csv.DictReader(file, delimiter=separator):
            numbers = {key: round(float(value), 4) for key, value in row.items() if value != "NA"}
            print(name, numbers)
print("Error:", float(np.mean((autoencoder.predict(noisy_test, verbose=0) - test) ** 2)))
