"""Folders of images become one uint8 array and the labels that their subfolders say.

Files are found in the order of `keras.utils.image_dataset_from_directory(..., shuffle=False)` and resized as it does by
default (bilinear, half-pixel centres, no antialiasing). What differs: values are rounded to uint8, which quarters
the memory, and JPEG files are decoded by Pillow, up to a few grey levels apart from TensorFlow's faster, coarser DCT.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import MissingExtra

# Those that Keras looks for.
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
# A progress bar that flashes by is noise.
SECONDS_WITHOUT_PROGRESS_BAR = 2.0
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class ImageFolder:
    """Images, the number of each one's class, and the names of the subfolders, if there are any."""

    paths: tuple[Path, ...]
    labels: np.ndarray
    classes: tuple[str, ...]


def find_images(folder: Path) -> ImageFolder:
    """List the images of a folder with a subfolder for each class, or without any."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes or [""]):
        walk = sorted((root, files) for root, _, files in os.walk(folder / name))
        found = [Path(root, file) for root, files in walk for file in sorted(files) if file.lower().endswith(SUFFIXES)]
        paths += found
        labels += [label] * len(found)
    return ImageFolder(tuple(paths), np.array(labels, np.int32), tuple(classes))


def read_images(paths: Sequence[Path], height: int, width: int, channels: int) -> np.ndarray:
    """Decode images in threads, of 1 (grey), 3 (RGB) or 4 (RGBA) channels, and resize them."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise MissingExtra("Images are decoded by Pillow, which is not installed: pip install pillow") from error
    images = np.empty((len(paths), height, width, channels), np.uint8)

    def fill(number: int) -> None:
        images[number] = resized(_decoded(paths[number], channels), height, width)

    with ThreadPoolExecutor(thread_name_prefix="flatout-images") as pool:
        # The first error in the order of the files is raised, and what is not begun by then is not done.
        _wait_for(pool.map(fill, range(len(paths))), len(paths))
    return images


def _wait_for(filled: Iterator[None], count: int) -> None:
    """Wait for all, with a progress bar once it takes long."""
    started = time.monotonic()
    for done, _ in enumerate(filled, 1):
        if time.monotonic() - started > SECONDS_WITHOUT_PROGRESS_BAR:
            from rich.console import Console
            from rich.progress import track

            console = Console(stderr=True)
            for _ in track(filled, "Decoding images", total=count, completed=done, console=console):
                pass


def _decoded(path: Path, channels: int) -> np.ndarray:
    """An image as an array of shape `(height, width, channels)`, converted as TensorFlow converts it."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if channels == 1:
                # A JPEG file holds its grey image; without this it is made from the colours.
                image.draft("L", image.size)
            # 16 bits a value. Pillow would clip them.
            is_deep = image.mode.startswith("I")
            shallow = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)) if is_deep else image
            pixels = np.asarray(shallow.convert(_MODES[channels]))
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError(f"{str(path)!r} cannot be decoded as an image ({error}). Repair or remove it.") from error
    return pixels.reshape(*pixels.shape[:2], channels)


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """`tf.image.resize(image, (height, width))`, rounded to uint8."""
    if image.shape[:2] == (height, width):
        return image
    above, below, down = _neighbours(image.shape[0], height)
    left, right, across = _neighbours(image.shape[1], width)
    rows = _between(image, above, below, down[:, None, None], 0)
    return np.rint(_between(rows, left, right, across[:, None], 1)).astype(np.uint8)


def _between(values: np.ndarray, low: np.ndarray, high: np.ndarray, weight: np.ndarray, axis: int) -> np.ndarray:
    start = values.take(low, axis).astype(np.float32)
    return start + (values.take(high, axis) - start) * weight


def _neighbours(old: int, new: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """For each of `new` places the two of `old` around it, and how far it lies from the first."""
    place = (np.arange(new) + 0.5) * (old / new) - 0.5
    low = np.floor(place)
    return np.maximum(low, 0).astype(np.intp), np.minimum(low + 1, old - 1).astype(np.intp), np.float32(place - low)
