"""Data augmentation inside the model: tell squares from discs, wherever they are and however they are turned."""

import keras
import numpy as np
from keras import layers

SIZE = 24
keras.utils.set_random_seed(1)


def draw(count):
    kinds = np.random.randint(0, 2, count)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    images = np.zeros((count, SIZE, SIZE, 1), "float32")
    for image, kind in zip(images, kinds, strict=True):
        row, column = np.random.randint(8, SIZE - 8, 2)
        radius = np.random.randint(4, 7)
        across, down = np.abs(columns - column), np.abs(rows - row)
        inside = np.maximum(across, down) < radius * 0.89 if kind else across**2 + down**2 < radius**2
        image[..., 0] = inside
    return images + np.random.normal(0, 0.2, images.shape).astype("float32"), kinds


x_train, y_train = draw(1_500)
x_test, y_test = draw(500)

augmentation = keras.Sequential(
    [layers.RandomFlip("horizontal"), layers.RandomTranslation(0.1, 0.1), layers.RandomContrast(0.2)],
    name="augmentation",
)

inputs = keras.Input((SIZE, SIZE, 1))
x = augmentation(inputs)
for filters in (8, 16):
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    x = layers.MaxPooling2D()(x)
x = layers.GlobalAveragePooling2D()(x)
outputs = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)

model.compile(keras.optimizers.Adam(3e-3), loss="binary_crossentropy", metrics=["accuracy"])
history = model.fit(x_train, y_train, batch_size=32, epochs=3, validation_data=(x_test, y_test), verbose=2)
print("Best validation accuracy:", max(history.history["val_accuracy"]))
