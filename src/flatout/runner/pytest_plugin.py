"""Runs Keras' own tests under flatout:

    KERAS_BACKEND=jax FLATOUT_FORCE=1 pytest -p flatout.runner.pytest_plugin --pyargs keras.src.trainers

Switches flatout on before the tests are imported, does what the `conftest.py` of Keras' repository does (the wheel has
the tests but not that file), and ends with the count of accelerated and stock calls.
FLATOUT=0 gives the same run on stock Keras.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from flatout.base.errors import FlatoutError
from flatout.base.when_used import jax, keras, tf, torch

from . import switch
from .explain import explain

_MARKERS = (
    "requires_trainable_backend: mark test for trainable backend only",
    "multi_device: mark test for running with multiple devices only",
)
# (method, accelerated, codes of the reasons) of each call, from the processes of pytest-xdist.
_from_workers: list[tuple[str, bool, list[str]]] = []


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    """Keep the conftest.py of the current folder away from an installed package's tests."""
    if early_config.known_args_namespace.pyargs:
        early_config.known_args_namespace.noconftest = True
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    try:
        switch.enable()
    except FlatoutError as error:
        raise pytest.UsageError(str(error)) from error
    if config.getoption("dist", "no") != "no":
        return  # The processes of pytest-xdist run the tests, and Keras takes seconds to import.
    # TensorFlow may crash when torch is loaded after it.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")
    _disable_reduced_precision(_backend())
    # A few of Keras' tests import this one function from the conftest.py of its repository.
    conftest: Any = sys.modules.setdefault("conftest", ModuleType("conftest"))
    if not hasattr(conftest, "skip_if_backend"):
        conftest.skip_if_backend = _skip_if_backend


def pytest_unconfigure() -> None:
    switch.disable()
    if getattr(sys.modules.get("conftest"), "skip_if_backend", None) is _skip_if_backend:
        del sys.modules["conftest"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    backend = _backend()
    unfit = [] if _has_several_devices(backend) else ["multi_device"]
    unfit += ["requires_trainable_backend"] if backend in ("numpy", "openvino") else []
    for item in items:
        for marker in filter(item.keywords.__contains__, unfit):
            item.add_marker(pytest.mark.skip(reason=f"Not here, on {backend}: {marker}."))


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["flatout"] = _calls()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _from_workers.extend(getattr(node, "workeroutput", {}).get("flatout", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in count_lines(_calls() + _from_workers):
        terminalreporter.write_line(line)


def count_lines(calls: list[tuple[str, bool, list[str]]]) -> list[str]:
    """One line for each of fit, evaluate and predict that was called."""
    lines: list[str] = []
    for method in ("fit", "evaluate", "predict"):
        stock = [codes for name, accelerated, codes in calls if name == method and not accelerated]
        total = sum(name == method for name, _, _ in calls)
        if not total:
            continue
        line = f"flatout: {total - len(stock)} {method} calls accelerated, {len(stock)} on stock Keras"
        counts = collections.Counter(code for codes in stock for code in codes).most_common()
        if counts:
            line += f" ({', '.join(f'{code} x{count}' for code, count in counts)})"
        lines.append(line)
    return lines


def _calls() -> list[tuple[str, bool, list[str]]]:
    return [(one.method, one.accelerated, [why.code for why in one.reasons]) for one in explain()]


def _backend() -> str:
    return keras.backend.backend()


def _skip_if_backend(given_backend: str, reason: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(_backend() == given_backend, reason=reason)


def _disable_reduced_precision(backend: str) -> None:
    """As Keras' conftest does: the tests' tolerances are those of float32."""
    if backend == "jax":
        if jax.default_backend() == "gpu":
            jax.config.update("jax_default_matmul_precision", "float32")
    elif backend == "tensorflow":
        if tf.config.list_physical_devices("GPU"):
            tf.config.experimental.enable_tensor_float_32_execution(False)
    elif backend == "torch":
        torch.backends.cudnn.allow_tf32 = False


def _has_several_devices(backend: str) -> bool:
    if backend == "jax":
        return jax.device_count() > 1
    if backend == "torch":
        return torch.cuda.is_available() and torch.cuda.device_count() > 1
    return False
