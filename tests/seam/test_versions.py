"""Which versions of Keras are known."""

from __future__ import annotations

import keras
import pytest

from flatout.seam import versions
from flatout.seam.versions import is_keras_3, is_tested, version_tuple


def test_the_installed_one_is_tested() -> None:
    assert is_tested(keras.__version__)
    assert is_keras_3(keras.__version__)


@pytest.mark.parametrize(
    ("version", "numbers"), [("3.16.0.dev1", (3, 16, 0)), ("3.15.1", (3, 15, 1)), ("unknown", ()), ("3", (3,))]
)
def test_leading_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert version_tuple(version) == numbers


def test_from_the_lowest_to_the_highest() -> None:
    versions_ = ("3.11.3", "3.12.0", "3.12.4", "3.15.1", "3.16.0.dev1", "3.16.2", "3.17.0", "unknown")
    assert [is_tested(version) for version in versions_] == [False, True, True, True, True, True, False, False]
    assert versions.tested_versions() == "3.12 to 3.16"


def test_keras_2() -> None:
    assert [is_keras_3(version) for version in ("2.15.0", "1.0", "3.0", "unknown", "10.1")] == [
        False,
        False,
        True,
        True,
        True,
    ]
