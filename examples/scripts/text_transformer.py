"""Text classification with a transformer block, as layers of our own. Are there more openings than closings?"""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(13)
VOCABULARY, LENGTH, WIDTH = 12, 16, 16


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, length, vocabulary, width, **options):
        super().__init__(**options)
        self.tokens = layers.Embedding(vocabulary, width)
        self.positions = layers.Embedding(length, width)

    def call(self, x):
        return self.tokens(x) + self.positions(ops.arange(0, ops.shape(x)[-1], 1))


class TransformerBlock(layers.Layer):
    def __init__(self, width, heads, hidden, rate=0.1, **options):
        super().__init__(**options)
        self.attention = layers.MultiHeadAttention(heads, width // heads)
        self.dense = keras.Sequential([layers.Dense(hidden, activation="relu"), layers.Dense(width)])
        self.first_norm, self.second_norm = layers.LayerNormalization(), layers.LayerNormalization()
        self.first_dropout, self.second_dropout = layers.Dropout(rate), layers.Dropout(rate)

    def call(self, x):
        attended = self.first_norm(x + self.first_dropout(self.attention(x, x)))
        return self.second_norm(attended + self.second_dropout(self.dense(attended)))


x = np.random.randint(0, VOCABULARY, (3_000, LENGTH))
y = (np.sum(x < 3, axis=1) > np.sum(x > 8, axis=1)).astype("int32")

inputs = keras.Input((LENGTH,))
hidden = TokenAndPositionEmbedding(LENGTH, VOCABULARY, WIDTH)(inputs)
hidden = TransformerBlock(WIDTH, heads=2, hidden=32)(hidden)
hidden = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(hidden))
outputs = layers.Dense(2, activation="softmax")(hidden)
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x[:2_400], y[:2_400], batch_size=32, epochs=4, validation_data=(x[2_400:], y[2_400:]), verbose=2)

guesses = np.argmax(model.predict(x[2_400:], verbose=0), axis=1)
for label in (0, 1):
    of_label = y[2_400:] == label
    print(f"label {label}: {np.sum(of_label)} sentences, {np.sum(of_label & (guesses == label))} found")
