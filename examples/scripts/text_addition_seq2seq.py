"""Sequence to sequence: learn to add two numbers that are written as text, such as "35+61"."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(19)
DIGITS = 2
CHARACTERS = "0123456789+ "
LENGTH = 2 * DIGITS + 1


def encode(text, rows):
    one_hot = np.zeros((rows, len(CHARACTERS)), "float32")
    for row, character in enumerate(text):
        one_hot[row, CHARACTERS.index(character)] = 1
    return one_hot


def decode(chances):
    return "".join(CHARACTERS[number] for number in chances.argmax(axis=-1))


pairs = np.random.randint(0, 10**DIGITS, (3_000, 2))
questions = [f"{a}+{b}".ljust(LENGTH)[::-1] for a, b in pairs]
answers = [str(a + b).ljust(DIGITS + 1) for a, b in pairs]
x = np.stack([encode(text, LENGTH) for text in questions])
y = np.stack([encode(text, DIGITS + 1) for text in answers])

model = keras.Sequential(
    [
        keras.Input((LENGTH, len(CHARACTERS))),
        layers.LSTM(48),
        layers.RepeatVector(DIGITS + 1),
        layers.LSTM(48, return_sequences=True),
        layers.Dense(len(CHARACTERS), activation="softmax"),
    ]
)
model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.Adam(5e-3), metrics=["accuracy"])

# As in the tutorial: one epoch at a time, then a look at some answers.
for epoch in range(1, 5):
    print("\nIteration", epoch)
    model.fit(x[:2_700], y[:2_700], batch_size=64, epochs=1, validation_data=(x[2_700:], y[2_700:]), verbose=2)
    for number in (2_700, 2_701, 2_702):
        guess = decode(model.predict(x[number : number + 1], verbose=0)[0])
        mark = "☑" if guess == answers[number] else "☒"
        print("Q", questions[number][::-1], "T", answers[number], mark, guess)
