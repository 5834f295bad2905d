"""Scripts as users write them, with the real Keras on jax."""

from __future__ import annotations

import json

import pytest

from .conftest import Folder

pytestmark = [pytest.mark.backend("jax"), pytest.mark.slow]

# Seeded by Python's own generator, from which Keras takes its seeds: `set_random_seed` imports TensorFlow, too.
_MODEL = """
import random

import numpy as np
import keras

random.seed(0)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.ones((256, 4), "float32"), np.ones((256, 1), "float32")
"""


@pytest.fixture
def script(folder: Folder) -> Folder:
    folder.environment.update(FLATOUT_FORCE="1", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")
    return folder


def test_backend_set_inside_the_script_is_used_and_fit_is_accelerated(script: Folder) -> None:
    script.write(
        "train.py",
        "import os\nos.environ['KERAS_BACKEND'] = 'jax'\n"
        + _MODEL
        + "print(model.fit(x, y, epochs=2, verbose=0).history['loss'], keras.backend.backend())",
    )
    ours, plain = script.flatout("train.py"), script.python("train.py")
    assert ours.stdout == plain.stdout, ours.stderr
    assert ours.stdout.endswith("jax\n")
    assert ours.stderr.startswith("flatout: 1 fit accelerated, 16 steps in ")
    assert len(ours.stderr.splitlines()) == 1


def test_keras_json_is_honoured(script: Folder) -> None:
    script.write("home/keras.json", json.dumps({"backend": "jax", "floatx": "float64"}))
    script.write("train.py", "import keras\nprint(keras.backend.backend(), keras.config.floatx())")
    done = script.flatout("train.py", KERAS_HOME=str(script.path / "home"))
    assert done.stdout == "jax float64\n", done.stderr


def test_spawned_children_are_accelerated(script: Folder) -> None:
    script.write(
        "train.py",
        "import multiprocessing\n"
        "def train(seed):\n"
        + "".join(f"    {line}\n" for line in _MODEL.strip().splitlines())
        + "    model.fit(x, y, verbose=0)\n"
        "    import flatout\n"
        "    return [(one.method, one.accelerated, one.engine) for one in flatout.explain()]\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(train, [1]))\n",
    )
    done = script.flatout("train.py", KERAS_BACKEND="jax")
    assert done.stdout == "[[('fit', True, 'jax')]]\n", done.stderr
    assert done.stderr == ""


def test_error_inside_fit_shows_the_traceback_of_plain_python(script: Folder) -> None:
    script.write("train.py", _MODEL + "def train():\n    model.fit(x[:, :3], y, verbose=0)\ntrain()")
    settings = {"KERAS_BACKEND": "jax", "FLATOUT_ENGINE": "stock"}
    ours, plain = script.flatout("train.py", **settings), script.python("train.py", **settings)
    assert "in train\n    model.fit(" in ours.stderr
    assert ours.stderr == plain.stderr
    assert ours.returncode == 1


def test_tensorflows_own_name_for_keras_is_covered(script: Folder) -> None:
    pytest.importorskip("tensorflow")
    script.write(
        "train.py",
        "import tensorflow as tf\nprint(tf.keras.Model.fit.__code__.co_filename)",
    )
    done = script.flatout("train.py", KERAS_BACKEND="tensorflow")
    assert done.stdout.rstrip().endswith("patches.py"), done.stderr


def test_strict_refuses_stock_keras(script: Folder) -> None:
    script.write("train.py", _MODEL + "model.compile('sgd', 'mse', run_eagerly=True)\nmodel.fit(x, y, verbose=0)")
    done = script.flatout("--strict", "train.py", KERAS_BACKEND="jax")
    assert "FallbackRefused: Strict mode: `fit` would run on stock Keras. run_eagerly" in done.stderr
    assert "patches.py" not in done.stderr
    assert done.returncode == 1


def test_notebook_extension(script: Folder) -> None:
    pytest.importorskip("IPython")
    script.write(
        "notebook.ipy",
        "%load_ext flatout\n"
        + _MODEL
        + "h = model.fit(x, y, verbose=0)\nimport flatout\nprint(flatout.explain()[0].engine)\n"
        "%unload_ext flatout\nprint(keras.Model.fit.__code__.co_filename.endswith('patch.py'))\n",
    )
    done = script.python("-m", "IPython", "--quick", "notebook.ipy", KERAS_BACKEND="jax", IPYTHONDIR=str(script.path))
    assert done.stdout.split() == ["jax", "False"], done.stderr
