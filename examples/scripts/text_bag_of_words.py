"""Sentiment of short reviews: an own vocabulary, an embedding, an average; stops when it gets no better."""

import random
from collections import Counter

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(7)
GOOD = ["great", "lovely", "superb", "funny", "moving", "brilliant", "charming", "warm"]
BAD = ["dull", "awful", "boring", "weak", "noisy", "clumsy", "bland", "cold"]
OTHER = ["the", "a", "film", "plot", "actor", "scene", "music", "it", "was", "with", "and", "very", "camera", "ending"]


def review():
    label = random.randint(0, 1)
    words = random.choices(OTHER, k=random.randint(6, 14))
    for _ in range(random.randint(1, 3)):
        favoured = GOOD if label else BAD
        words.insert(random.randrange(len(words)), random.choice(favoured if random.random() < 0.85 else GOOD + BAD))
    return " ".join(words), label


reviews, labels = zip(*(review() for _ in range(6_000)), strict=True)
counts = Counter(word for text in reviews for word in text.split())
vocabulary = {word: number for number, (word, _) in enumerate(counts.most_common(), start=1)}
print("Most common:", [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]])

sequences = [[vocabulary[word] for word in text.split()] for text in reviews]
x = keras.utils.pad_sequences(sequences, maxlen=18)
y = np.array(labels)

model = keras.Sequential(
    [
        keras.Input((18,), dtype="int32"),
        layers.Embedding(len(vocabulary) + 1, 16),
        layers.GlobalAveragePooling1D(),
        layers.Dense(16, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("rmsprop", "binary_crossentropy", metrics=["accuracy"])
stopper = keras.callbacks.EarlyStopping(monitor="val_accuracy", min_delta=0.001, patience=2, restore_best_weights=True)
history = model.fit(x, y, batch_size=32, epochs=8, validation_split=0.2, callbacks=[stopper], verbose=2)
print("Stopped after epoch", stopper.stopped_epoch, "best was", stopper.best_epoch)

for text in ("a superb and moving film", "the plot was awful and the music bland"):
    ids = keras.utils.pad_sequences([[vocabulary.get(word, 0) for word in text.split()]], maxlen=18)
    print(f"{text!r}: {float(model.predict(ids, verbose=0)[0, 0]):.3f}")
