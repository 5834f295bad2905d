"""The public names, and what `import flatout` loads."""

from __future__ import annotations

import importlib
from pathlib import Path

import scripts

import flatout

_ROOT = Path(flatout.__file__).parent


def test_all_is_sorted_and_importable() -> None:
    assert flatout.__all__ == sorted(flatout.__all__)
    for name in flatout.__all__:
        assert getattr(flatout, name).__module__ == "flatout", name


def test_nothing_public_is_missing_from_all() -> None:
    modules = {path.stem for path in _ROOT.iterdir()}
    names = {name for name in vars(flatout) if not name.startswith("_")}
    assert names - modules <= set(flatout.__all__)
    assert set(flatout.__all__) <= names


def test_names_that_are_also_modules_stay_functions() -> None:
    importlib.import_module("flatout.fit")
    importlib.import_module("flatout.base.options")
    assert callable(flatout.fit)
    assert callable(flatout.options)


def test_import_loads_no_backend_no_keras_and_no_tables() -> None:
    absent = [
        "keras",
        "jax",
        "tensorflow",
        "torch",
        "pandas",
        "pyarrow",
        "ray",
        "cuda",
        "cupy",
        "rich",
        "IPython",
        "libcst",
    ]
    code = f"import flatout, flatout.cli, sys; print([name for name in {absent} if name in sys.modules])"
    done = scripts.run(_ROOT.parent, "-c", code)
    assert done.stdout == "[]\n", done.stderr
