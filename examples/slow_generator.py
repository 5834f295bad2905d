"""A generator that waits for each batch, as one does that reads from a service: count the bright pixels of an image.

python slow_generator.py
python -m flatout slow_generator.py
"""

import argparse
import time

import keras
import numpy as np
from keras import layers


def fetch(number, wait):
    """Stands for a request to a service: it answers after a while, always the same for the same number."""
    time.sleep(wait)
    rng = np.random.default_rng(number)
    images = rng.integers(0, 256, (64, 24, 24, 1), dtype="uint8")
    images[rng.random(images.shape) < rng.random((64, 1, 1, 1))] = 0
    return images, (images > 127).mean(axis=(1, 2, 3), dtype="float32")


def batches(wait):
    number = 0
    while True:
        yield fetch(number, wait)
        number += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wait", type=float, default=0.02, help="seconds that the service takes for a batch")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            keras.Input((24, 24, 1), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, activation="relu"),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(1),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
    history = model.fit(
        batches(arguments.wait),
        steps_per_epoch=arguments.steps,
        epochs=arguments.epochs,
        validation_data=fetch(10**6, 0),
        verbose=2,
    )
    print(f"validation error: {history.history['val_mae'][-1]:.3f} of the pixels")


if __name__ == "__main__":
    main()
