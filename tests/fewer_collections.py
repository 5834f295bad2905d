"""Python looks for garbage less often: among all the backends' objects, that took a tenth of the time of the tests.

`conftest.py` imports it, and `make keras-tests` gives it to pytest as a plugin.
"""

import gc

gc.set_threshold(20_000, 10, 10)


def set_aside_imports() -> None:
    """What Keras imports is out of the collector's sight: a third of a second for each full collection otherwise."""
    import keras

    # This imports tensorflow, whatever the backend.
    keras.utils.set_random_seed(0)
    gc.freeze()
