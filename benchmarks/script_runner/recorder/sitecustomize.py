"""Writes down the `History` and the seconds of each fit. Python runs this file at its start wherever it is on the path.

So a script need not be touched, and its children are recorded too. Keras is not imported here: the script chooses its
backend first.
"""

import functools
import importlib.abc
import importlib.util
import json
import os
import sys
import time


def _record_histories(module):
    module.History.on_train_end = _write_history


def _time_fits_of_keras(module):
    decorate = module.filter_traceback
    # Every `fit` of Keras' trainers is decorated.
    module.filter_traceback = lambda function: _timed(decorate(function), function.__name__ == "fit")


def _time_fits_of_flatout(module):
    module.conduct = _timed(module.conduct, True)


_CHANGES = {
    "keras.src.callbacks.history": _record_histories,
    "keras.src.utils.traceback_utils": _time_fits_of_keras,
    "flatout.fit": _time_fits_of_flatout,
}


class _Changed(importlib.abc.MetaPathFinder):
    """Finds the modules of the table, and changes each when it has been executed."""

    def find_spec(self, name, path=None, target=None):
        change = _CHANGES.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


_running = []


def _timed(function, is_fit):
    @functools.wraps(function)
    def timed(*args, **kwargs):
        # Of flatout's calls, `fit` alone; of a fit inside another, the outer one alone.
        if _running or (args and args[0] in ("evaluate", "predict")):
            return function(*args, **kwargs)
        _running.append(function)
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            _running.clear()
            _write({"fit_seconds": time.perf_counter() - began})

    return timed if is_fit else function


def _write_history(history, logs=None):
    from multiprocessing import current_process

    _write({"process": current_process().name, "epochs": history.epoch, "history": history.history})


def _write(record):
    with open(os.environ["RECORDED_HISTORIES"], "a") as file:  # noqa: PTH123
        file.write(json.dumps(record, default=_plain) + "\n")


def _plain(value):
    return value.tolist() if hasattr(value, "tolist") else float(value)


if "RECORDED_HISTORIES" in os.environ:
    sys.meta_path.insert(0, _Changed())
