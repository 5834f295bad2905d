"""A small residual network, label smoothing, weight decay and a cosine schedule with warm-up."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(3)
CLASSES, SIZE = 4, 16
patterns = np.random.normal(size=(CLASSES, SIZE, SIZE, 3)).astype("float32")


def sample(count):
    labels = np.random.randint(0, CLASSES, count)
    shifts = np.random.randint(-2, 3, count)
    images = np.stack([np.roll(patterns[label], shift, axis=1) for label, shift in zip(labels, shifts, strict=True)])
    noisy = images + np.random.normal(0, 2.0, images.shape)
    return noisy.astype("float32"), keras.utils.to_categorical(labels, CLASSES)


def residual_block(x, filters, stride=1):
    shortcut = x
    x = layers.Conv2D(filters, 3, stride, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    if stride > 1:
        shortcut = layers.Conv2D(filters, 1, stride)(shortcut)
    return layers.Activation("relu")(layers.Add()([x, shortcut]))


x_train, y_train = sample(1_600)
x_test, y_test = sample(400)

inputs = keras.Input((SIZE, SIZE, 3))
x = layers.Conv2D(8, 3, padding="same")(inputs)
x = residual_block(x, 8)
x = residual_block(x, 16, stride=2)
outputs = layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x))
model = keras.Model(inputs, outputs, name="tiny_resnet")

steps = 4 * 50
schedule = keras.optimizers.schedules.CosineDecay(1e-4, steps, warmup_target=5e-3, warmup_steps=20)
model.compile(
    optimizer=keras.optimizers.AdamW(schedule, weight_decay=1e-3),
    loss=keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
    metrics=["accuracy", keras.metrics.TopKCategoricalAccuracy(2, name="top2")],
)
history = model.fit(x_train, y_train, batch_size=32, epochs=4, validation_data=(x_test, y_test), verbose=2)
print("Parameters:", model.count_params())
print("Learning rate at the end:", float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)))
print("Top-2 accuracy:", history.history["val_top2"][-1])
