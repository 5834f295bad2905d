"""Fashion-MNIST, from wherever this machine has it, or a stand-in of the same shape that says so."""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import socket
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flatout.base.errors import FlatoutError, InvalidOption
from flatout.base.keras_home import keras_home
from flatout.base.when_used import keras

VARIABLE = "FLATOUT_FASHION_MNIST"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
STAND_IN = "generated stand-in, not Fashion-MNIST"
_DOWNLOAD_TIMEOUT = 5.0
_UNSIGNED_BYTE = 8


@dataclass(frozen=True)
class FashionMNIST:
    """Images of shape (rows, 28, 28) in 0 to 1 as float32, labels 0 to 9, and where they came from."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    origin: str

    @property
    def is_stand_in(self) -> bool:
        return self.origin == STAND_IN


def load() -> FashionMNIST:
    """Load the data set from the first place that has it."""
    if named := os.environ.get(VARIABLE):
        folder = Path(named).expanduser()
        if missing := _missing_in(folder):
            raise InvalidOption(
                f"Invalid value for {VARIABLE}. Received: {named!r}, which lacks {', '.join(missing)}. "
                "Expected a folder with the four .gz files of Fashion-MNIST."
            )
        return _from_folder(folder)
    cache = keras_home() / "datasets" / "fashion-mnist"
    for folder in (cache, DEBIAN):
        if not _missing_in(folder):
            return _from_folder(folder)
    _download()
    return stand_in() if _missing_in(cache) else _from_folder(cache)


def _missing_in(folder: Path) -> list[str]:
    return [name for name in FILES if not (folder / name).is_file()]


def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped idx file of unsigned bytes; one that is damaged is refused, with what to do."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, f"it cannot be unpacked ({error})") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise _damaged(path, "it does not start as an idx file of unsigned bytes does")
    dimensions = content[3]
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise _damaged(path, "it ends within its header")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = int(np.prod(shape, dtype=np.int64))
    if len(content) - header != expected:
        raise _damaged(path, f"it promises {expected} bytes of values {shape} and holds {len(content) - header}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def stand_in(train_rows: int = 60_000, test_rows: int = 10_000) -> FashionMNIST:
    """Ten blurred patterns, shifted, mixed and noisy: as large as Fashion-MNIST and about as hard to learn."""
    random = np.random.default_rng(2017)
    coarse = random.random((10, 7, 7), dtype=np.float32)
    patterns = np.kron(coarse, np.ones((1, 4, 4), np.float32))
    for axis in (1, 2):
        patterns = (np.roll(patterns, -1, axis) + 2 * patterns + np.roll(patterns, 1, axis)) / 4

    def draw(rows: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.integers(0, 10, rows, dtype=np.uint8)
        others = random.integers(0, 10, rows, dtype=np.uint8)
        share = random.uniform(0.45, 1.0, (rows, 1, 1)).astype(np.float32)
        images = share * patterns[labels] + (1 - share) * patterns[others]
        images += random.normal(0, 0.25, images.shape).astype(np.float32)
        return np.clip(images, 0, 1), labels

    x_train, y_train = draw(train_rows)
    x_test, y_test = draw(test_rows)
    return FashionMNIST(x_train, y_train, x_test, y_test, STAND_IN)


def _from_folder(folder: Path) -> FashionMNIST:
    x_train, y_train, x_test, y_test = (read_idx(folder / name) for name in FILES)
    for (images, labels), name in zip(((x_train, y_train), (x_test, y_test)), FILES[::2], strict=True):
        if images.shape != (len(labels), 28, 28):
            raise _damaged(folder / name, f"it holds {images.shape} for {len(labels)} labels, not (rows, 28, 28)")
    x_train, x_test = (images.astype(np.float32) / np.float32(255) for images in (x_train, x_test))
    return FashionMNIST(x_train, y_train, x_test, y_test, str(folder))


def _damaged(path: Path, what: str) -> FlatoutError:
    return FlatoutError(f"{path} is damaged: {what}. Delete it, or name a folder with whole files in {VARIABLE}.")


@functools.cache
def _download() -> None:
    """Try to; once, because Keras reports every attempt."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_DOWNLOAD_TIMEOUT)
    try:
        # Keras' download reports every kind of network trouble as a bare Exception.
        with contextlib.suppress(Exception):
            keras.datasets.fashion_mnist.load_data()
    finally:
        socket.setdefaulttimeout(before)
