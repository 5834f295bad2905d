"""Folders of images: the files, labels and pixels of `keras.utils.image_dataset_from_directory`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flatout.base.errors import MissingExtra
from flatout.data.sources import images
from flatout.data.sources.images import find_images, read_images, resized

Image = pytest.importorskip("PIL.Image")


def _picture(height: int, width: int, seed: int) -> np.ndarray:
    """Smooth and a little noisy, as photographs are."""
    down, across = np.mgrid[:height, :width]
    colours = np.stack([3 * down, 2 * across, down + across], -1) + 40 * seed
    noise = np.random.default_rng(seed).integers(0, 9, colours.shape)
    return np.minimum(colours % 200 + noise, 255).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes with a nested folder, an empty one, and files that are no images."""
    for number, name in enumerate(["b/2.png", "b/10.png", "b/deep/1.PNG", "a/x.bmp", "a/y.gif", "a/z.jpg"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(_picture(40 + number, 50, number)).save(path)
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "a" / "notes.txt").write_text("no image")
    return tmp_path


@pytest.mark.parametrize(("size", "channels"), [((20, 30), 3), ((64, 31), 3), ((40, 50), 4), ((16, 16), 1)])
def test_pixels_labels_and_order_are_those_of_keras(folder: Path, size: tuple[int, int], channels: int) -> None:
    pytest.importorskip("tensorflow")
    import keras

    if channels != 3:
        # TensorFlow decodes the other formats in colour only.
        for path in (*folder.glob("a/*.bmp"), *folder.glob("a/*.gif"), *folder.glob("a/*.jpg")):
            path.unlink()
    dataset = keras.utils.image_dataset_from_directory(
        str(folder),
        image_size=size,
        color_mode={1: "grayscale", 3: "rgb", 4: "rgba"}[channels],
        shuffle=False,
        batch_size=None,
        verbose=False,
    )
    found = find_images(folder)
    assert [str(path) for path in found.paths] == dataset.file_paths
    assert list(found.classes) == dataset.class_names
    pixels = read_images(found.paths, *size, channels)
    assert (pixels.shape, pixels.dtype) == ((len(found.paths), *size, channels), np.uint8)
    for path, label, got, (expected, expected_label) in zip(found.paths, found.labels, pixels, dataset, strict=True):
        assert label == int(expected_label)
        # Rounding to uint8, and in grey and JPEG the decoders' own.
        tolerance = 0.501 + (6 if path.suffix == ".jpg" else 1 if channels == 1 else 0)
        np.testing.assert_allclose(got, np.asarray(expected), rtol=0, atol=tolerance)


@settings(max_examples=25, deadline=None)
@given(
    image=hnp.arrays(np.uint8, st.tuples(st.integers(1, 20), st.integers(1, 20), st.sampled_from([1, 3]))),
    height=st.integers(1, 24),
    width=st.integers(1, 24),
)
def test_resizing_is_that_of_tensorflow(image: np.ndarray, height: int, width: int) -> None:
    tf = pytest.importorskip("tensorflow")
    expected = tf.image.resize(image, (height, width)).numpy()
    np.testing.assert_allclose(resized(image, height, width), expected, rtol=0, atol=0.501)


def test_images_of_their_own_size_keep_every_bit(tmp_path: Path) -> None:
    picture = _picture(8, 9, 0)
    Image.fromarray(picture).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_images([tmp_path / "a.png"], 8, 9, 3)[0], picture)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    grey = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1024
    Image.fromarray(grey).save(tmp_path / "a.png")
    for channels in (1, 3):
        pixels = read_images([tmp_path / "a.png"], 8, 8, channels)[0]
        np.testing.assert_array_equal(pixels, np.repeat((grey >> 8)[..., None], channels, -1))


def test_a_folder_without_classes_has_no_labels(tmp_path: Path) -> None:
    for name in ("b.png", "a.png"):
        Image.fromarray(_picture(4, 4, 0)).save(tmp_path / name)
    found = find_images(tmp_path)
    assert [path.name for path in found.paths] == ["a.png", "b.png"]
    assert found.classes == ()


def test_a_broken_image_is_named(folder: Path) -> None:
    (folder / "b" / "2.png").write_bytes(b"hello, this is text")
    with pytest.raises(ValueError, match=r"2\.png' cannot be decoded as an image"):
        read_images(find_images(folder).paths, 8, 8, 3)
    whole = folder / "b" / "10.png"
    whole.write_bytes(whole.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"10\.png' cannot be decoded as an image"):
        read_images([whole], 8, 8, 3)


def test_the_progress_bar_comes_only_when_it_takes_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = find_images(folder).paths
    quick = read_images(paths, 8, 8, 3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(images, "SECONDS_WITHOUT_PROGRESS_BAR", -1.0)
    slow = read_images(paths, 8, 8, 3)
    assert "Decoding images" in capsys.readouterr().err
    np.testing.assert_array_equal(quick, slow)


def test_without_pillow_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtra, match="pip install pillow"):
        read_images([Path("a.png")], 8, 8, 3)
