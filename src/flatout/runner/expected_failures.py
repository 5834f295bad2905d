"""The strict list of Keras' tests that are expected to fail under flatout."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.base.errors import InvalidOption, MissingExtra

PACKAGED = Path(__file__).with_name("expected_failures.yaml")
SECTIONS = ("all", "jax", "tensorflow", "torch")
_FIELDS = {"test": str, "reason": str, "when": dict, "run": bool}


@dataclass(frozen=True)
class ExpectedFailure:
    """One test that is expected to fail.

    Attributes:
        test: The end of its node id, from a path component on: `"trainer_test.py::TestTrainer::test_x"`.
        reason: Why, in one sentence.
        run: False for a test that must not even start.
    """

    test: str
    reason: str
    run: bool = True

    @property
    def module(self) -> str:
        return self.test.partition("::")[0]

    def is_test(self, node_id: str) -> bool:
        return _ends_with_path(node_id, self.test)


def read(path: Path, backend: str) -> list[ExpectedFailure]:
    """The entries of a YAML file that hold for a backend and for the installed versions.

    Raises:
        InvalidOption: The file does not have the form that `expected_failures.yaml` explains.
    """
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


def unknown_tests(expected: Iterable[ExpectedFailure], node_ids: Iterable[str]) -> list[str]:
    """Entries that name no collected test although their module was collected."""
    ids = list(node_ids)
    modules = {node_id.partition("::")[0] for node_id in ids}
    return [
        entry.test
        for entry in expected
        if any(_ends_with_path(module, entry.module) for module in modules)
        and not any(entry.is_test(node_id) for node_id in ids)
    ]


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
