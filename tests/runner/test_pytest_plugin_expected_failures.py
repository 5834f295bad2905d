from __future__ import annotations

from pathlib import Path

import pytest

from flatout.base.errors import InvalidOption
from flatout.runner.pytest_plugin import PACKAGED, SECTIONS, ExpectedFailure, read_expected, unknown_tests

pytestmark = pytest.mark.backend("jax")  # The runner is the same for all of them.


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "expected.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("backend", SECTIONS[1:])
def test_packaged_list_is_valid_and_short(backend: str) -> None:
    assert len(read_expected(PACKAGED, backend)) <= 5


def test_entries_of_all_backends_and_of_this_one_are_read(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        "all: [{test: 'a_test.py::A::a', reason: Because.}]\n"
        "jax: [{test: 'b_test.py::B::b', reason: Because., run: false}]\n"
        "torch: [{test: 'c_test.py::C::c', reason: Because.}]\n",
    )
    assert read_expected(path, "jax") == [
        ExpectedFailure("a_test.py::A::a", "Because."),
        ExpectedFailure("b_test.py::B::b", "Because.", run=False),
    ]


def test_versions_decide(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        "jax:\n"
        "- {test: 'a_test.py::a', reason: Because., when: {keras: '>=3'}}\n"
        "- {test: 'b_test.py::b', reason: Because., when: {keras: '<3'}}\n"
        "- {test: 'c_test.py::c', reason: Because., when: {keras: '>=3', no-such-package: '>=1'}}\n",
    )
    assert [entry.test for entry in read_expected(path, "jax")] == ["a_test.py::a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("numpy: []", "Invalid sections"),
        ("[]\n[", "cannot be read"),
        ("jax: [{test: 'a_test.py::a'}]", "Invalid entry"),
        ("jax: [{test: 'a_test.py::a', reason: ' '}]", "Invalid entry"),
        ("jax: [{test: 'a_test.py', reason: Because.}]", "Invalid entry"),
        ("jax: [{test: 'a_test.py::a', reason: Because., wehn: {}}]", "Invalid entry"),
        ("jax: [{test: 'a_test.py::a', reason: Because., when: {keras: 'new'}}]", "Invalid versions"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_expected(_write(tmp_path, text), "jax")


def test_an_entry_names_one_test_from_a_path_component_on() -> None:
    entry = ExpectedFailure("trainers/a_test.py::A::test_fit", "Because.")
    assert entry.is_test("../keras/src/trainers/a_test.py::A::test_fit")
    assert not entry.is_test("../keras/src/trainers/a_test.py::A::test_fit_flow")
    assert not entry.is_test("../keras/src/other_trainers/a_test.py::A::test_fit")


def test_entries_without_a_test_are_found_where_their_module_was_collected() -> None:
    expected = [ExpectedFailure("a_test.py::A::old", "Because."), ExpectedFailure("b_test.py::B::b", "Because.")]
    assert unknown_tests(expected, ["x/a_test.py::A::new"]) == ["a_test.py::A::old"]
