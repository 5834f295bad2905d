"""The closing line, its switches, and the places where it must stay away."""

from __future__ import annotations

import pytest

from .conftest import Folder

pytestmark = pytest.mark.backend("jax")  # The runner is the same for all of them.

_FIT = "import keras\nprint(keras.Model().fit())"


def test_no_closing_line_if_nothing_was_fitted(folder: Folder) -> None:
    folder.write("program.py", "print('hello')")
    assert folder.flatout("program.py").stderr == ""


def test_closing_line_comes_after_the_programs_own_output(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write(
        "program.py", _FIT + "\nimport atexit, sys\natexit.register(print, 'bye', file=sys.stderr)\nsys.exit(3)"
    )
    done = folder.flatout("program.py")
    assert done.stderr.splitlines()[0] == "bye"
    assert done.stderr.splitlines()[1].startswith("flatout: ")
    assert done.returncode == 3


def test_zero_switches_everything_off(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write(
        "program.py",
        _FIT + "\nimport sys\nprint('flatout' in repr(sys.meta_path), keras.Model.fit.__module__)",
    )
    done = folder.flatout("program.py", FLATOUT="0")
    assert done.stdout == "stock fit None\nhistory\nFalse keras\n"
    assert done.stderr == ""


def test_wrong_switch_is_named(folder: Folder) -> None:
    folder.write("program.py", "print('hello')")
    done = folder.flatout("program.py", FLATOUT="maybe")
    assert "Invalid value for FLATOUT. Received: 'maybe'" in done.stderr
    assert done.returncode == 2


def test_explain_lists_each_call_with_its_reason(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write("program.py", _FIT + "\nkeras.Model().predict(1)")
    lines = folder.flatout("--explain", "program.py").stderr.splitlines()
    assert lines[0].startswith("fit: stock")
    assert lines[1].startswith("  fake: ")
    assert lines[2].startswith("predict: stock")
    assert lines[-1].startswith("flatout: nothing accelerated; 1 fit, 1 predict on stock Keras")


def test_closed_streams_do_no_harm(folder: Folder) -> None:
    folder.add_fake_keras()
    for end in ("sys.stderr.close()", "os.close(2)", "sys.stderr = None", "sys.stdout.close()"):
        folder.write("program.py", f"{_FIT}\nimport os, sys\n{end}")
        assert folder.flatout("program.py").returncode == 0, end


def test_forked_child_that_exits_says_nothing(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write("program.py", _FIT + "\nimport os, sys\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()")
    assert folder.flatout("program.py").stderr.count("flatout:") == 1
