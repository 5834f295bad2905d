"""Moving averages of weights: validation and checkpoints see the averages, training goes on with the weights."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(163)
x = np.random.normal(size=(2_400, 12)).astype("float32")
y = np.argmax(x[:, :4] + np.random.normal(0, 0.7, (2_400, 4)), axis=1)


def train(with_averages):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((12,)), layers.Dense(48, activation="relu"), layers.Dense(4, activation="softmax")]
    )
    optimizer = keras.optimizers.Adam(1e-2, use_ema=with_averages, ema_momentum=0.98)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    callbacks = [keras.callbacks.ModelCheckpoint("ema-{epoch}.weights.h5", save_weights_only=True)]
    if with_averages:
        callbacks.insert(0, keras.callbacks.SwapEMAWeights(swap_on_epoch=True))
    history = model.fit(
        x[:1_920],
        y[:1_920],
        batch_size=32,
        epochs=4,
        validation_data=(x[1_920:], y[1_920:]),
        callbacks=callbacks,
        verbose=2,
    )
    return model, history.history["val_loss"]


_, plain = train(False)
model, averaged = train(True)
for epoch, (one, other) in enumerate(zip(plain, averaged, strict=True), start=1):
    print(f"epoch {epoch}: validation loss {one:.4f} with the weights, {other:.4f} with their averages")
model.load_weights("ema-2.weights.h5")
print("Checkpoint of epoch 2:", model.evaluate(x[1_920:], y[1_920:], verbose=0))
