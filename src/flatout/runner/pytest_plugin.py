"""Runs Keras' own tests under flatout:

    KERAS_BACKEND=jax FLATOUT_FORCE=1 pytest -p flatout.runner.pytest_plugin --pyargs keras.src.trainers

Switches flatout on before the tests are imported, does what the `conftest.py` of Keras' repository does (the wheel has
the tests but not that file), marks the expected failures, and ends with the count of accelerated and stock calls.
FLATOUT=0 gives the same run on stock Keras.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.metadata
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flatout.base.errors import FlatoutError, InvalidOption, MissingExtra
from flatout.base.when_used import jax, keras, tf, torch

from . import switch
from .explain import explain

PACKAGED = Path(__file__).with_name("expected_failures.yaml")
SECTIONS = ("all", "jax", "tensorflow", "torch")
_FIELDS = {"test": str, "reason": str, "when": dict, "run": bool}
_MARKERS = (
    "requires_trainable_backend: mark test for trainable backend only",
    "multi_device: mark test for running with multiple devices only",
)
# (method, accelerated, codes of the reasons) of each call, from the processes of pytest-xdist.
_from_workers: list[tuple[str, bool, list[str]]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("flatout").addoption(
        "--flatout-expected-failures",
        metavar="FILE",
        type=Path,
        default=PACKAGED,
        help="YAML list of Keras' tests that fail under flatout, each with a reason (default: flatout's own)",
    )


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


# Before the selection by -k and -m, so that a test left out by it still counts as existing.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    backend = _backend()
    unfit = [] if _has_several_devices(backend) else ["multi_device"]
    unfit += ["requires_trainable_backend"] if backend in ("numpy", "openvino") else []
    for item in items:
        for marker in filter(item.keywords.__contains__, unfit):
            item.add_marker(pytest.mark.skip(reason=f"Not here, on {backend}: {marker}."))
    try:
        _mark_expected_failures(config, items, backend)
    except FlatoutError as error:
        raise pytest.UsageError(str(error)) from error


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


def _mark_expected_failures(config: pytest.Config, items: list[pytest.Item], backend: str) -> None:
    path: Path = config.getoption("--flatout-expected-failures")
    expected = read_expected(path, backend)
    for entry in expected:
        for item in items:
            if entry.is_test(item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=entry.reason, run=entry.run, strict=True))
    # `module.py::test` and --last-failed collect a module in part.
    if config.getoption("lf", False) or any("::" in argument for argument in config.args):
        return
    unknown = unknown_tests(expected, [item.nodeid for item in items])
    if unknown:
        raise pytest.UsageError(
            f"Expected failures that name no test. Received: {', '.join(unknown)} in {path}. Correct or remove them."
        )


@dataclass(frozen=True)
class ExpectedFailure:
    """One test that is expected to fail, named by the end of its node id; without `run` it must not even start."""

    test: str
    reason: str
    run: bool = True

    def is_test(self, node_id: str) -> bool:
        return _ends_with_path(node_id, self.test)


def read_expected(path: Path, backend: str) -> list[ExpectedFailure]:
    """The entries of a YAML file that hold for a backend and for the installed versions."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(f"{path.name} is YAML, which needs PyYAML. Install it with: pip install pyyaml") from error

    try:
        sections = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise InvalidOption(f"The list of expected failures cannot be read. Received: {path}: {error}") from error
    if not isinstance(sections, dict) or not set(sections) <= set(SECTIONS):
        raise InvalidOption(
            f"Invalid sections in {path}. Received: {sections!r:.200}. Expected a mapping with {', '.join(SECTIONS)}."
        )
    entries = [*(sections.get("all") or []), *(sections.get(backend) or [])]
    checked = [_checked(entry, path) for entry in entries]
    return [
        ExpectedFailure(entry["test"], entry["reason"], entry.get("run", True))
        for entry in checked
        if _versions_match(entry.get("when", {}), path)
    ]


def unknown_tests(expected: Iterable[ExpectedFailure], node_ids: list[str]) -> list[str]:
    """Entries that name no collected test although their module was collected."""
    modules = {_module(node_id) for node_id in node_ids}
    return [
        entry.test
        for entry in expected
        if any(_ends_with_path(module, _module(entry.test)) for module in modules)
        and not any(map(entry.is_test, node_ids))
    ]


def _module(test: str) -> str:
    return test.partition("::")[0]


def _ends_with_path(whole: str, end: str) -> bool:
    return whole == end or whole.endswith("/" + end)


def _checked(entry: Any, path: Path) -> dict[str, Any]:
    is_valid = (
        isinstance(entry, dict)
        and {"test", "reason"} <= set(entry) <= set(_FIELDS)
        and all(isinstance(value, _FIELDS[name]) for name, value in entry.items())
        and "::" in entry["test"]
        and entry["reason"].strip()
    )
    if not is_valid:
        raise InvalidOption(
            f"Invalid entry in {path}. Received: {entry!r}. Expected `test` (module.py::Class::test), `reason` (a "
            "sentence), and optionally `when` (package: versions) and `run` (true or false)."
        )
    return entry


def _versions_match(when: dict[str, str], path: Path) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    for package, versions in when.items():
        try:
            wanted = SpecifierSet(versions)
        except (InvalidSpecifier, TypeError) as error:
            raise InvalidOption(
                f"Invalid versions in {path}. Received: {package}: {versions!r}. Expected for example '>=3.15,<3.16'."
            ) from error
        try:
            installed = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return False
        if not wanted.contains(installed, prereleases=True):
            return False
    return True
