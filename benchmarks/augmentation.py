"""Which of Keras' augmentation layers run inside the compiled step, and whether the results are stock Keras'.

Trains a small model that begins with the layer, with stock Keras and with flatout from the same seed, and prints a
table in Markdown:

    KERAS_BACKEND=jax python benchmarks/augmentation.py [--precision fast] [NAME...]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import flatout
from flatout.base.options import PRECISIONS

ARGUMENTS: dict[str, dict[str, Any]] = {
    "RandomFlip": {},
    "RandomRotation": {"factor": 0.2},
    "RandomTranslation": {"height_factor": 0.2, "width_factor": 0.2},
    "RandomZoom": {"height_factor": 0.2},
    "RandomShear": {"x_factor": 0.2, "y_factor": 0.2},
    "RandomPerspective": {},
    "RandomCrop": {"height": 12, "width": 12},
    "RandomElasticTransform": {},
    "RandomErasing": {},
    "RandomBrightness": {"factor": 0.2},
    "RandomContrast": {"factor": 0.2},
    "RandomHue": {"factor": 0.2},
    "RandomSaturation": {"factor": 0.2},
    "RandomColorJitter": {"brightness_factor": 0.2, "contrast_factor": 0.2},
    "RandomColorDegeneration": {"factor": 0.2},
    "RandomGrayscale": {},
    "RandomSharpness": {"factor": 0.2},
    "RandomPosterization": {"factor": 4},
    "RandomInvert": {},
    "RandomGaussianBlur": {},
    "MixUp": {},
    "CutMix": {},
    "RandAugment": {},
    "AugMix": {},
    "GaussianNoise": {"stddev": 0.1},
}
SIZE = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="layers; all of them by default")
    parser.add_argument("--precision", choices=PRECISIONS, default="exact")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| {keras.config.backend()} | runs | largest difference of a weight |\n| --- | --- | ---: |")
    for name in chosen.names or ARGUMENTS:
        print(row(name, chosen.precision), flush=True)


def row(name: str, precision: str) -> str:
    def build() -> keras.Model:
        layer = getattr(keras.layers, name)(**ARGUMENTS[name], seed=1)
        return keras.Sequential([keras.Input((SIZE, SIZE, 3)), layer, keras.layers.Flatten(), keras.layers.Dense(3)])

    try:
        expected = train(build, engine="stock")
    except Exception as error:
        return f"| {name} | fails in stock Keras: {type(error).__name__} | |"
    weights = train(build, precision=precision)
    report = flatout.explain()[-1]
    difference = max(np.abs(one - other).max() for one, other in zip(expected, weights, strict=True))
    codes = ", ".join(why.code for why in report.reasons)
    how = "inside the step" if report.accelerated else "stock Keras"
    return f"| {name} | {how}{f' ({codes})' if codes else ''} | {difference:.0e} |"


def train(build: Callable[[], keras.Model], **options: str) -> list[np.ndarray]:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, SIZE, SIZE, 3), np.uint8), rng.integers(0, 3, 40)
    model = build()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.learning_rate = 1e-4
    with flatout.options(force=True, **options):
        flatout.fit(model, x, y, batch_size=16, epochs=2, verbose=0)
    return model.get_weights()


if __name__ == "__main__":
    main()
