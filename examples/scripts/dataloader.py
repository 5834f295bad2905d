"""A torch DataLoader with a data set and a collate function of our own feeds Keras on any backend."""

import keras
import numpy as np
import torch
from keras import layers
from torch.utils.data import DataLoader, Dataset

keras.utils.set_random_seed(131)


class Waves(Dataset):
    """Sines of three frequencies, made when they are asked for."""

    def __init__(self, count):
        random = np.random.default_rng(0)
        self.kinds = random.integers(0, 3, count)
        self.phases = random.uniform(0, 2 * np.pi, count)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        time = np.arange(40) / 40
        wave = np.sin(2 * np.pi * (1 + 2 * self.kinds[index]) * time + self.phases[index])
        noise = np.random.default_rng(index).normal(0, 1.0, 40)
        return (wave + noise).astype("float32")[:, None], self.kinds[index]


def collate(samples):
    waves, kinds = zip(*samples, strict=True)
    return torch.from_numpy(np.stack(waves)), torch.from_numpy(np.array(kinds))


train = DataLoader(Waves(2_000), 32, shuffle=True, collate_fn=collate, generator=torch.Generator().manual_seed(4))
test = DataLoader(Waves(300), 50, collate_fn=collate)

model = keras.Sequential(
    [
        keras.Input((40, 1)),
        layers.Conv1D(16, 7, activation="relu"),
        layers.GlobalAveragePooling1D(),
        layers.Dense(3, activation="softmax"),
    ]
)
model.compile(keras.optimizers.Adam(5e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(train, epochs=4, validation_data=test, verbose=2)
loss, accuracy = model.evaluate(test, verbose=0)
print(f"Test loss {loss:.4f}, accuracy {accuracy:.4f}")
