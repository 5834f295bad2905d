"""Keras is patched when the script imports it, not before, and with the script's own settings."""

from __future__ import annotations

import pytest

from .conftest import Folder

pytestmark = pytest.mark.backend("jax")  # The runner is the same for all of them.

_FIT = "import keras\nprint(keras.Model().fit())"


def test_runner_imports_neither_keras_nor_a_backend(folder: Folder) -> None:
    folder.write(
        "program.py",
        "import sys\nprint([m for m in ('keras', 'jax', 'tensorflow', 'torch', 'pandas', 'rich') if m in sys.modules])",
    )
    assert folder.flatout("program.py").stdout == "[]\n"


def test_backend_may_be_set_inside_the_script(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write("program.py", "import os\nos.environ['KERAS_BACKEND'] = 'torch'\n" + _FIT)
    done = folder.flatout("program.py")
    assert done.stdout == "stock fit torch\nhistory\n"
    assert done.stderr == "flatout: nothing accelerated; 1 fit on stock Keras (fake)\n"


def test_keras_imported_by_another_library_is_patched(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write("library.py", "import importlib\ndef model(): return importlib.import_module('keras').Model()")
    folder.write("program.py", "import library\nlibrary.model().fit()")
    assert "1 fit on stock Keras" in folder.flatout("program.py").stderr


def test_methods_keep_name_documentation_and_signature(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write(
        "program.py",
        "import inspect, keras\nf = keras.Model.fit\n"
        "print(f.__name__, f.__doc__, f.__qualname__, inspect.signature(f))",
    )
    assert folder.flatout("program.py").stdout == "fit Trains. Trainer.fit (self, x=None, y=None)\n"


def test_loader_and_resources_of_keras_stay_as_they_are(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write(
        "program.py",
        "import inspect, keras, pkgutil\n"
        "print(type(keras.__loader__), vars(keras.__loader__).keys(), keras.__spec__, len(inspect.getsource(keras)))\n"
        "print(len(pkgutil.get_data('keras', '__init__.py')))",
    )
    ours, plain = folder.flatout("program.py"), folder.python("program.py")
    without_address = [text.stdout.partition("ModuleSpec")[0] for text in (ours, plain)]
    assert without_address[0] == without_address[1]
    assert ours.stdout.splitlines()[-1] == plain.stdout.splitlines()[-1]


def test_failing_import_of_keras_shows_plain_pythons_traceback(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write("fake/keras/__init__.py", "def f(): raise OSError('no backend')\nf()")
    folder.write(
        "program.py",
        "import traceback\ntry:\n    import keras\nexcept OSError:\n    traceback.print_exc()\nimport keras",
    )
    ours, plain = folder.flatout("program.py"), folder.python("program.py")
    assert (ours.stderr, ours.returncode) == (plain.stderr, plain.returncode)


def test_second_import_after_a_failed_one_is_patched(folder: Folder) -> None:
    folder.add_fake_keras()
    init = folder.path / "fake/keras/__init__.py"
    init.write_text("import os\nif 'READY' not in os.environ: raise OSError\n" + init.read_text())
    folder.write(
        "program.py", "import os\ntry:\n    import keras\nexcept OSError:\n    os.environ['READY'] = '1'\n" + _FIT
    )
    assert "1 fit on stock Keras" in folder.flatout("program.py").stderr


@pytest.mark.parametrize("order", ["keras_first", "flatout_first"])
def test_enable_works_before_and_after_the_import(folder: Folder, order: str) -> None:
    folder.add_fake_keras()
    lines = ["import keras", "import flatout; flatout.enable(); flatout.enable()"]
    lines = lines if order == "keras_first" else lines[::-1]
    folder.write("program.py", "\n".join([*lines, "keras.Model().fit()", "print(len(flatout.explain()))"]))
    assert folder.python("program.py").stdout.splitlines()[-1] == "1"


def test_disable_gives_keras_its_own_methods_back(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write(
        "program.py",
        "import keras, flatout, sys\nbefore, finders = keras.Model.fit, list(sys.meta_path)\n"
        "flatout.enable(strict=True)\nassert keras.Model.fit is not before\n"
        "flatout.disable()\nflatout.disable()\nassert keras.Model.fit is before\nassert sys.meta_path == finders\n"
        "from flatout.base.options import current\nassert not current().strict\nprint('ok')",
    )
    done = folder.python("program.py")
    assert done.stdout == "ok\n", done.stderr


def test_later_settings_are_added_to_earlier_ones(folder: Folder) -> None:
    folder.write(
        "program.py",
        "import flatout\nfrom flatout.base.options import current\n"
        "flatout.enable(engine='stock')\nprint(current().strict, current().engine)",
    )
    assert folder.flatout("--strict", "program.py").stdout == "True stock\n"


def test_keras_2_is_told_apart(folder: Folder) -> None:
    folder.add_fake_keras(version="2.15.0")
    folder.write("program.py", _FIT)
    done = folder.flatout("program.py")
    assert done.stdout == "stock fit None\nhistory\n"
    assert "accelerates Keras 3 only. Received: Keras 2.15.0" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_tf_keras_gets_one_clear_message(folder: Folder) -> None:
    folder.add_fake_keras(name="tf_keras", version="2.19.0")
    folder.write("program.py", "import tf_keras\ntf_keras.Model().fit()\nimport importlib; importlib.reload(tf_keras)")
    done = folder.flatout("program.py")
    assert done.stdout == "stock fit None\n"
    assert "accelerates Keras 3 only. Received: tf_keras (Keras 2)" in done.stderr
    assert len(done.stderr.splitlines()) == 1
