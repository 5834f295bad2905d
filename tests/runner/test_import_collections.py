"""What `import keras` made is set aside from the garbage collector until the first fit, and only then."""

from __future__ import annotations

import pytest

from .conftest import Folder

pytestmark = pytest.mark.backend("jax")  # The runner is the same for all of them.

_REPORT = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 0)\n"


def test_set_aside_from_import_to_first_fit(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write("program.py", f"import keras\n{_REPORT}keras.Model().predict(1)\n{_REPORT}")
    assert folder.flatout("program.py").stdout == "True True\nTrue False\n"


def test_what_the_user_froze_stays_frozen(folder: Folder) -> None:
    folder.add_fake_keras()
    for program in (
        "import gc; gc.freeze()\nimport keras\n",
        "import keras\nimport gc; kept = [[] for _ in range(10_000)]; gc.freeze()\n",
    ):
        folder.write("program.py", f"{program}keras.Model().predict(1)\n{_REPORT}")
        assert folder.flatout("program.py").stdout == "True True\n"


def test_collector_that_the_user_switched_off_stays_off(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write("program.py", f"import gc; gc.disable()\nimport keras\n{_REPORT}")
    assert folder.flatout("program.py").stdout == "False False\n"


def test_collects_again_after_a_failed_import(folder: Folder) -> None:
    folder.write("fake/keras/__init__.py", "raise ImportError('broken')")
    folder.environment["PYTHONPATH"] += ":" + str(folder.path / "fake")
    folder.write("program.py", f"try:\n    import keras\nexcept ImportError: pass\n{_REPORT}")
    assert folder.flatout("program.py").stdout == "True False\n"


def test_finalizers_run_at_the_end_without_a_fit(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write(
        "program.py",
        "class Cycle:\n"
        "    def __init__(self): self.itself = self\n"
        "    def __del__(self): print('finalized')\n"
        "def leave(): Cycle()\n"
        "leave()\nimport keras\n",
    )
    assert folder.flatout("program.py").stdout == folder.python("program.py").stdout == "finalized\n"
