"""Processes that multiprocessing starts are accelerated too, and find the script's classes."""

from __future__ import annotations

import pytest

from .conftest import Folder

pytestmark = pytest.mark.backend("jax")  # The runner is the same for all of them.

_PROGRAM = """
import multiprocessing, sys
import sibling

class Answer:
    pass
def work(x):
    import keras, flatout
    from flatout.base.options import current
    keras.Model().fit()
    return sibling.value + x, len(flatout.explain()), current().strict, Answer()
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(1) as pool:
        value, reports, strict, answer = pool.apply(work, (1,))
    print(value, reports, strict, type(answer) is Answer)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("way", ["script", "module"])
def test_children_are_accelerated(folder: Folder, method: str, way: str) -> None:
    folder.add_fake_keras()
    folder.write("sibling.py", "value = 1")
    folder.write("program.py", _PROGRAM)
    target = ["program.py"] if way == "script" else ["-m", "program"]
    done = folder.flatout("--strict", *target, method)
    assert done.stdout.splitlines()[-1:] == ["2 1 True True"], done.stderr
    assert done.stderr == ""


def test_children_are_left_alone_when_switched_off(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write("sibling.py", "value = 1")
    folder.write("program.py", _PROGRAM)
    done = folder.flatout("program.py", "spawn", FLATOUT="0")
    assert done.stdout.splitlines()[-1:] == ["2 0 False True"], done.stderr


@pytest.mark.slow
def test_children_of_an_enabled_program_are_accelerated_until_disabled(folder: Folder) -> None:
    folder.add_fake_keras()
    folder.write(
        "program.py",
        "import multiprocessing\n"
        "def work():\n    import keras, flatout\n    keras.Model().fit()\n    return len(flatout.explain())\n"
        "if __name__ == '__main__':\n"
        "    import flatout\n"
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    flatout.enable()\n"
        "    with spawn.Pool(1) as pool: print(pool.apply(work))\n"
        "    flatout.disable()\n"
        "    with spawn.Pool(1) as pool: print(pool.apply(work))\n",
    )
    done = folder.python("program.py")
    assert [line for line in done.stdout.splitlines() if "stock" not in line] == ["1", "0"], done.stderr
