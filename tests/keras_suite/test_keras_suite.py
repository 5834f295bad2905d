"""A short part of Keras' own tests under the plugin; `make keras-tests` and `make keras-suite` run the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import run


@pytest.mark.slow
@pytest.mark.backend("torch")
def test_keras_tests_pass_and_most_fits_are_accelerated(backend: str, tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "flatout.runner.pytest_plugin"),
        *("--pyargs", "keras.src.callbacks.early_stopping_test"),
        KERAS_BACKEND=backend,
        FLATOUT_FORCE="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    count = re.search(r"flatout: (\d+) fit calls accelerated, (\d+) on stock Keras", done.stdout)
    assert count, done.stdout
    assert int(count[1]) > 3 * int(count[2]), done.stdout
