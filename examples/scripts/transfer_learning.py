"""Transfer learning: train on one task, freeze, train a new head, then unfreeze and fine-tune at a low rate."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(79)
mixing = np.random.normal(size=(6, 32))


def samples(count):
    factors = np.random.normal(size=(count, 6))
    return (np.tanh(factors) @ mixing + np.random.normal(0, 0.1, (count, 32))).astype("float32"), factors


x, factors = samples(4_000)
first_task = np.argmax(factors[:, :4], axis=1)
second_task = (factors[:, 4] + factors[:, 0] > 0).astype("float32")

base = keras.Sequential(
    [
        keras.Input((32,)),
        layers.Dense(64, activation="relu"),
        layers.BatchNormalization(),
        layers.Dense(32, activation="relu"),
    ],
    name="base",
)
source = keras.Sequential([base, layers.Dense(4, activation="softmax")])
source.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
print("The first task")
source.fit(x, first_task, batch_size=64, epochs=3, verbose=2)

base.trainable = False
inputs = keras.Input((32,))
features = base(inputs, training=False)
outputs = layers.Dense(1)(layers.Dropout(0.2)(features))
model = keras.Model(inputs, outputs)
few_x, few_y = x[:640], second_task[:640]


def compile_with(rate):
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)])


before = [weight.copy() for weight in base.get_weights()]
compile_with(1e-2)
print("A new head:", len(model.trainable_weights), "trainable weights")
model.fit(few_x, few_y, batch_size=16, epochs=4, validation_data=(x[640:], second_task[640:]), verbose=2)
print("The base is as it was:", all(map(np.array_equal, before, base.get_weights())))

base.trainable = True
compile_with(1e-4)
print("Fine-tuning:", len(model.trainable_weights), "trainable weights")
model.fit(few_x, few_y, batch_size=16, epochs=3, validation_data=(x[640:], second_task[640:]), verbose=2)
print("The base has moved:", not all(map(np.array_equal, before, base.get_weights())))
