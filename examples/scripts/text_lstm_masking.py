"""An LSTM over padded sentences: padding is masked, so that it does not count. Was the first word repeated?"""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(11)
WORDS, LENGTH = 20, 12


def sentences(count):
    x = np.zeros((count, LENGTH), "int32")
    y = np.zeros(count, "float32")
    for row in range(count):
        length = np.random.randint(4, LENGTH + 1)
        x[row, :length] = np.random.randint(1, WORDS, length)
        if np.random.rand() < 0.5:
            x[row, np.random.randint(1, length)] = x[row, 0]
        y[row] = x[row, 0] in x[row, 1:length]
    return x, y


x_train, y_train = sentences(1_600)
x_test, y_test = sentences(400)

model = keras.Sequential(
    [
        layers.Embedding(WORDS, 16, mask_zero=True),
        layers.LSTM(24),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(keras.optimizers.Adam(1e-2), "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(name="auc")])
model.fit(x_train, y_train, batch_size=32, epochs=3, validation_data=(x_test, y_test), verbose=2)

print("Mask of the first sentence:", keras.ops.convert_to_numpy(model.layers[0].compute_mask(x_test[:1])).astype(int))
results = model.evaluate(x_test, y_test, verbose=0, return_dict=True)
print({name: round(value, 4) for name, value in results.items()})
