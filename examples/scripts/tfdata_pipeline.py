"""A tf.data pipeline feeds `fit` on any backend: shuffle, map, batch, cache, prefetch."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(113)
signals = np.random.normal(size=(3_000, 32)).astype("float32")
labels = (np.abs(np.fft.rfft(signals)).argmax(axis=1) > 8).astype("int32")


def normalize(signal, label):
    return (signal - tf.reduce_mean(signal)) / tf.math.reduce_std(signal), label


train = (
    tf.data.Dataset.from_tensor_slices((signals[:2_400], labels[:2_400]))
    .map(normalize, num_parallel_calls=tf.data.AUTOTUNE)
    .cache()
    .shuffle(2_400, seed=5, reshuffle_each_iteration=True)
    .batch(32, drop_remainder=True)
    .prefetch(tf.data.AUTOTUNE)
)
validation = tf.data.Dataset.from_tensor_slices((signals[2_400:], labels[2_400:])).map(normalize).batch(100)
print("Batches:", int(train.cardinality()), "and", int(validation.cardinality()))

model = keras.Sequential(
    [
        layers.Reshape((32, 1)),
        layers.Conv1D(16, 5, activation="relu"),
        layers.GlobalMaxPooling1D(),
        layers.Dense(2),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(train, epochs=4, validation_data=validation, verbose=2)
print("Evaluated:", [round(value, 4) for value in model.evaluate(validation, verbose=0)])
print("Predicted shape:", model.predict(validation.map(lambda signal, label: signal), verbose=0).shape)
