"""Writes down the `History` of each fit. Python runs this file at its start wherever its folder is on the path.

So a script need not be touched, and its children are recorded too. Keras is not imported here: the script chooses its
backend first.
"""

import importlib.abc
import importlib.util
import json
import os
import sys

MODULE = "keras.src.callbacks.history"


class _History(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.History.on_train_end = _write_down

        spec.loader.exec_module = exec_module
        return spec


def _write_down(history, logs=None):
    from multiprocessing import current_process

    fit = {"process": current_process().name, "epochs": history.epoch, "history": history.history}
    with open(os.environ["RECORDED_HISTORIES"], "a") as file:  # noqa: PTH123
        file.write(json.dumps(fit, default=_plain) + "\n")


def _plain(value):
    return value.tolist() if hasattr(value, "tolist") else float(value)


if "RECORDED_HISTORIES" in os.environ:
    sys.meta_path.insert(0, _History())
