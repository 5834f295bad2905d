from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import keras
import pytest

import flatout
from flatout.doctor.measuring.user_frames import CodePlace, is_waiting, place_beside, place_of

pytestmark = pytest.mark.backend("jax")  # Nothing is computed.
_KERAS, _FLATOUT = Path(keras.__file__).parent, Path(flatout.__file__).parent


def _frame_in(*calls: tuple[str, str], module: dict[str, Any] | None = None) -> FrameType:
    """The innermost frame of functions that call each other, as (file, name) from the outermost on."""
    inner: Any = sys._getframe
    for path, name in reversed(calls):
        scope: dict[str, Any] = {"inner": inner, **(module or {})}
        exec(compile(f"def {name}():\n    frame = inner()\n    return frame", path, "exec"), scope)
        inner = scope[name]
    frame: FrameType = inner()
    return frame


_FIT = (str(_KERAS / "src/backend/jax/trainer.py"), "fit")


@pytest.mark.parametrize(
    ("around", "part"),
    [
        ((), "step"),
        (("src/callbacks/callback_list.py",), "callbacks"),
        (("src/losses/loss.py",), "loss"),
        (("src/metrics/metric.py",), "metrics"),
        (("src/trainers/data_adapters/generator_data_adapter.py",), "input"),
        (("src/callbacks/callback_list.py", "src/losses/loss.py"), "callbacks"),
    ],
)
def test_the_part_is_that_of_the_outermost_frame_in_the_fit(around: tuple[str, ...], part: str) -> None:
    calls = [("/home/me/train.py", "main"), _FIT, *((str(_KERAS / file), "f") for file in around)]
    frame = _frame_in(*calls, ("/home/me/slow.py", "work"))
    assert place_of(frame, None) == CodePlace("/home/me/slow.py", 3, "work", part, True)


def test_a_method_of_the_user_that_computes_the_loss() -> None:
    place = place_of(_frame_in(_FIT, ("/home/me/model.py", "compute_loss")), None)
    assert place is not None
    assert place.part == "loss"


def test_what_is_outside_of_the_fit_is_not_looked_at() -> None:
    inside = str(_KERAS / "src/backend/jax/trainer.py")
    assert place_of(_frame_in(("/home/me/train.py", "main"), _FIT, (inside, "f")), None) == CodePlace(
        inside, 3, "f", "step", False
    )
    assert place_of(_frame_in(("/home/me/train.py", "main")), None) is None


def test_what_is_older_than_the_entry_is_not_looked_at() -> None:
    frame = _frame_in(("/home/me/train.py", "main"), ("/home/me/slow.py", "work"))
    assert place_of(frame, frame.f_back) == CodePlace("/home/me/slow.py", 3, "work", "step", True)
    assert place_of(frame, frame) is None


@pytest.mark.parametrize(
    "path",
    [
        threading.__file__,
        "<frozen importlib._bootstrap>",
        "<__array_function__ internals>",
        "/tmp/__autograph_generated_file1.py",
        "/somewhere/lib/python3.12/site-packages/tool.py",
        "/usr/lib/python3/dist-packages/tool.py",
        str(_FLATOUT / "fit.py"),
        str(_KERAS / "src/layers/layer.py"),
    ],
)
def test_files_of_libraries_are_not_the_users(path: str) -> None:
    place = place_beside(_frame_in((path, "f")))
    assert place is None or place.is_of_user is (place.path == __file__)


@pytest.mark.parametrize(
    "path", ["/home/me/keras/src/train.py", "/tmp/ipykernel_7/12.py", "<ipython-input-3-abc>", "<stdin>", "train.py"]
)
def test_files_and_cells_of_the_user(path: str) -> None:
    place = place_of(_frame_in(_FIT, (path, "f")), None)
    assert place is not None
    assert (place.path, place.is_of_user) == (path, True)


def test_code_from_the_command_line_is_the_users_and_that_of_dataclasses_is_not() -> None:
    calls = [_FIT, ("<string>", "f")]
    of_command = place_of(_frame_in(*calls, module={"__name__": "__main__"}), None)
    assert of_command is not None
    assert of_command.is_of_user

    @dataclasses.dataclass
    class Kept:
        frame: Any

        def __post_init__(self) -> None:
            self.frame = sys._getframe(1)

    place = place_beside(Kept(None).frame)
    assert place is not None
    assert place.path == __file__


def test_another_thread_works_for_the_input() -> None:
    place = place_beside(_frame_in(("/home/me/data.py", "load")))
    assert place == CodePlace("/home/me/data.py", 3, "load", "input", True)


def test_a_thread_that_waits_is_known_by_its_frame() -> None:
    assert is_waiting(_frame_in((threading.__file__, "wait")))
    assert not is_waiting(_frame_in(("/home/me/data.py", "load")))
