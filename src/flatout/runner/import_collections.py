"""Keeps Python's garbage collector out of `import keras`, and what that import made out of the collector's way.

Collections take a seventh of `import keras`, and one that falls into a later `import tensorflow` visits it all again.
What is set aside comes back before anything is trained, so nothing of the user's is kept for longer than that.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
from collections.abc import Iterator

_set_aside = 0


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Meanwhile nothing is collected; what exists at the end is set aside until `take_back`."""
    global _set_aside
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
    if collects and gc.get_freeze_count() <= _set_aside:  # Not if the user has frozen something.
        gc.freeze()
        _set_aside = gc.get_freeze_count()
        atexit.unregister(take_back)
        atexit.register(take_back)


def take_back() -> None:
    """Let the collector see again what was set aside."""
    global _set_aside
    if _set_aside:
        if gc.get_freeze_count() <= _set_aside:  # More: the user has frozen what there is.
            gc.unfreeze()
        _set_aside = 0
        atexit.unregister(take_back)
