"""Image segmentation with a little U-Net and a Dice loss: which pixels belong to the disc?"""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(5)
SIZE = 32


def discs(count):
    rows, columns = np.mgrid[:SIZE, :SIZE]
    centres = np.random.uniform(8, SIZE - 8, (count, 2, 1, 1))
    radii = np.random.uniform(4, 9, (count, 1, 1))
    masks = (rows - centres[:, 0]) ** 2 + (columns - centres[:, 1]) ** 2 < radii**2
    images = masks + np.random.normal(0, 0.6, masks.shape)
    return images[..., None].astype("float32"), masks[..., None].astype("float32")


def dice_loss(y_true, y_pred):
    overlap = ops.sum(y_true * y_pred, axis=(1, 2, 3))
    total = ops.sum(y_true, axis=(1, 2, 3)) + ops.sum(y_pred, axis=(1, 2, 3))
    return 1 - (2 * overlap + 1) / (total + 1)


def pixels_right(y_true, y_pred):
    return ops.mean(ops.cast(ops.equal(y_true > 0.5, y_pred > 0.5), "float32"), axis=(1, 2, 3))


inputs = keras.Input((SIZE, SIZE, 1))
skips = []
x = inputs
for filters in (8, 16):
    x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    skips.append(x)
    x = layers.MaxPooling2D()(x)
x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
for filters in (16, 8):
    x = layers.Conv2DTranspose(filters, 2, strides=2, activation="relu")(x)
    x = layers.Concatenate()([x, skips.pop()])
    x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
outputs = layers.Conv2D(1, 1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)

x_train, y_train = discs(600)
x_test, y_test = discs(100)
model.compile("adam", loss=dice_loss, metrics=[pixels_right, keras.metrics.BinaryIoU(target_class_ids=[1])])
model.fit(x_train, y_train, batch_size=16, epochs=3, validation_data=(x_test, y_test), verbose=2)

predicted = model.predict(x_test[:3], verbose=0)[..., 0] > 0.5
for number, (mask, guess) in enumerate(zip(y_test[..., 0], predicted, strict=False)):
    print(f"image {number}: {int(mask.sum())} pixels in the disc, {int(guess.sum())} found")
