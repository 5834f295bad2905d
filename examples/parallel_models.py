"""Trains a small model for each width in a process of its own, and names the best.

python parallel_models.py --widths 16 64 --epochs 5
python -m flatout parallel_models.py --widths 16 64 --epochs 5
"""

import argparse
import multiprocessing

import numpy as np


def make_data(rows):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 20)).astype("float32")
    y = (np.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2] > 0).astype("int32")
    return x, y


def train(job):
    """Runs in a child process, so that Keras is imported here and not in the parent."""
    width, epochs, rows = job
    import keras

    keras.utils.set_random_seed(width)
    x, y = make_data(rows)
    model = keras.Sequential(
        [
            keras.Input((20,)),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=32, epochs=epochs, validation_split=0.25, verbose=0)
    return width, history.history["val_accuracy"][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000)
    arguments = parser.parse_args()

    jobs = [(width, arguments.epochs, arguments.rows) for width in arguments.widths]
    # Backends keep threads and device handles that do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.map(train, jobs)
    for width, accuracy in results:
        print(f"width {width:>4}: validation accuracy {accuracy:.4f}")
    best = max(results, key=lambda result: result[1])
    print(f"best width: {best[0]}")


if __name__ == "__main__":
    main()
