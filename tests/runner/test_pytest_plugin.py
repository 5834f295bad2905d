"""The plugin under a pytest of its own, with a stand-in for Keras."""

from __future__ import annotations

import pytest

from flatout.runner.pytest_plugin import count_lines

from .conftest import Folder

# The runner is the same for all of them.
pytestmark = [pytest.mark.backend("jax"), pytest.mark.slow]

_TESTS = """
import keras, pytest
from keras import Model   # patched before this module is imported


class TestFit:
    def test_fit(self):
        assert Model().fit() == "history"
    def test_broken(self):
        assert Model().predict(1) == "something else"
@pytest.mark.multi_device
def test_on_two_devices(): raise AssertionError
@pytest.mark.requires_trainable_backend
def test_that_trains(): Model().evaluate()
"""


@pytest.fixture
def suite(folder: Folder) -> Folder:
    folder.add_fake_keras()
    with (folder.path / "fake/keras/__init__.py").open("a") as file:
        file.write("class backend:\n    backend = staticmethod(lambda: 'tensorflow')\n")
    for name in ("torch", "tensorflow"):
        folder.write(f"fake/{name}.py", "class config: list_physical_devices = staticmethod(lambda kind: [])\n")
    folder.write("fit_test.py", _TESTS)
    return folder


def _run(suite: Folder, *arguments: str, **environment: str) -> tuple[int, str]:
    done = suite.python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "flatout.runner.pytest_plugin", "--strict-markers"),
        *(arguments or ("fit_test.py",)),
        **environment,
    )
    return done.returncode, done.stdout + done.stderr


def test_calls_are_counted_and_a_failure_fails(suite: Folder) -> None:
    code, output = _run(suite)
    assert "1 failed, 2 passed, 1 skipped" in output
    assert "flatout: 0 fit calls accelerated, 1 on stock Keras (fake x1)" in output
    assert "flatout: 0 evaluate calls accelerated, 1 on stock Keras (fake x1)" in output
    assert code == 1


def test_what_trains_is_skipped_on_a_backend_that_does_not(suite: Folder) -> None:
    with (suite.path / "fake/keras/__init__.py").open("a") as file:
        file.write("backend.backend = staticmethod(lambda: 'numpy')\n")
    code, output = _run(suite, "fit_test.py", "-k", "test_that_trains")
    assert "1 skipped" in output
    assert code == 0


def test_zero_runs_the_tests_on_stock_keras(suite: Folder) -> None:
    code, output = _run(suite, "fit_test.py", "-k", "test_fit or trains", FLATOUT="0")
    assert "2 passed" in output
    assert "flatout:" not in output
    assert code == 0


def test_calls_of_worker_processes_are_counted(suite: Folder) -> None:
    pytest.importorskip("xdist")
    _, output = _run(suite, "fit_test.py", "-n", "2")
    assert "flatout: 0 fit calls accelerated, 1 on stock Keras (fake x1)" in output


def test_counts_name_the_commonest_reason_first() -> None:
    calls = [("fit", True, []), ("fit", False, ["small"]), *[("fit", False, ["source"])] * 2]
    assert count_lines(calls) == ["flatout: 1 fit calls accelerated, 3 on stock Keras (source x2, small x1)"]


def test_conftest_of_the_current_folder_stays_away_from_an_installed_packages_tests(suite: Folder) -> None:
    suite.write("conftest.py", "raise SystemExit('loaded')")
    suite.write("fake/package/__init__.py", "")
    suite.write("fake/package/fit_test.py", "from conftest import skip_if_backend\n" + _TESTS)
    code, output = _run(suite, "--pyargs", "package.fit_test")
    assert "1 failed, 2 passed, 1 skipped" in output
    assert code == 1
