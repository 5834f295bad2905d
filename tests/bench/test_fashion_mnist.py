"""The loader of Fashion-MNIST: where it looks, and what it says about damaged files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from flatout.base.errors import FlatoutError, InvalidOption
from flatout.bench import fashion_mnist


def write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for name, rows in (("train", 12), ("t10k", 5)):
        write_idx(tmp_path / f"{name}-images-idx3-ubyte.gz", random.integers(0, 256, (rows, 28, 28), np.uint8))
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte.gz", random.integers(0, 10, rows, np.uint8))
    return tmp_path


def test_the_named_folder_is_read_and_scaled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fashion_mnist.VARIABLE, str(folder))
    data = fashion_mnist.load()
    assert data.x_train.shape == (12, 28, 28)
    assert data.x_train.dtype == np.float32
    assert 0.9 < data.x_train.max() <= 1.0
    assert data.y_test.shape == (5,)
    assert data.origin == str(folder)
    assert not data.is_stand_in


def test_keras_cache_comes_before_debian(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fashion_mnist.VARIABLE, raising=False)
    cache = tmp_path / "keras" / "datasets" / "fashion-mnist"
    cache.mkdir(parents=True)
    for name in fashion_mnist.FILES:
        (cache / name).write_bytes((folder / name).read_bytes())
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    assert fashion_mnist.load().origin == str(cache)


def test_debian_package_is_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "empty"))
    monkeypatch.setattr(fashion_mnist, "DEBIAN", folder)
    assert fashion_mnist.load().origin == str(folder)


@pytest.mark.slow
def test_without_files_and_network_a_stand_in_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    def fail() -> None:
        raise Exception("URL fetch failure")

    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "empty"))
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "absent")
    monkeypatch.setattr(keras.datasets.fashion_mnist, "load_data", fail)
    data = fashion_mnist.load()
    assert data.is_stand_in
    assert "not Fashion-MNIST" in data.origin
    assert data.x_train.shape == (60_000, 28, 28)
    assert data.x_test.shape == (10_000, 28, 28)


def test_the_stand_in_can_be_learnt_but_not_at_once() -> None:
    data = fashion_mnist.stand_in(4000, 1000)
    x, test = data.x_train.reshape(-1, 784), data.x_test.reshape(-1, 784)
    centres = np.stack([x[data.y_train == label].mean(0) for label in range(10)])
    nearest = ((test[:, None] - centres) ** 2).sum(-1).argmin(1)
    assert 0.6 < (nearest == data.y_test).mean() < 0.99


def test_a_folder_without_the_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fashion_mnist.VARIABLE, str(tmp_path))
    with pytest.raises(InvalidOption, match=r"which lacks train-images-idx3-ubyte\.gz"):
        fashion_mnist.load()


def test_a_truncated_archive_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-100])
    monkeypatch.setenv(fashion_mnist.VARIABLE, str(folder))
    with pytest.raises(FlatoutError, match=r"train-images-idx3-ubyte\.gz is damaged: it cannot be unpacked"):
        fashion_mnist.load()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not start as an idx file"),
        (b"<html>not found</html>", "does not start as an idx file"),
        (struct.pack(">HBB", 0, 13, 1), "does not start as an idx file of unsigned bytes"),
        (struct.pack(">HBBI", 0, 8, 3, 60000), "ends within its header"),
        (struct.pack(">HBBI", 0, 8, 1, 10) + bytes(9), r"promises 10 bytes of values \(10,\) and holds 9"),
        (struct.pack(">HBBI", 0, 8, 1, 10) + bytes(11), "holds 11"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(content))
    with pytest.raises(FlatoutError, match=message):
        fashion_mnist.read_idx(file)


def test_images_and_labels_must_be_as_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", np.zeros(4, np.uint8))
    monkeypatch.setenv(fashion_mnist.VARIABLE, str(folder))
    with pytest.raises(FlatoutError, match="for 4 labels"):
        fashion_mnist.load()
