"""The thread in which cuDNN tries its kernels: always the same, to the end, and errors are the caller's."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from flatout.engines.torch.replay.tuned import in_one_thread

pytestmark = pytest.mark.backend("torch")

_SCRIPT = """
import threading
from flatout.engines.torch.replay.tuned import in_one_thread

first = in_one_thread(threading.current_thread)

def later():
    threading.main_thread().join()
    assert in_one_thread(threading.current_thread) is first
    print("the same")

threading.Thread(target=later).start()
"""


def test_whoever_asks_has_the_same_thread() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = {*pool.map(lambda _: in_one_thread(threading.current_thread), range(64))}
    assert len(found) == 1
    assert found != {threading.current_thread()}


def test_errors_are_the_callers() -> None:
    def fails() -> None:
        raise SystemExit("no memory")

    with pytest.raises(SystemExit, match="no memory"):
        in_one_thread(fails)
    assert in_one_thread(lambda: 3) == 3


def test_it_is_there_when_the_main_thread_has_ended() -> None:
    ended = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "the same\n"
