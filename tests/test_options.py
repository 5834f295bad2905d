"""Options come from variables, from enable() and from with-blocks, and bad values are told at once."""

from __future__ import annotations

import pytest

import flatout
from flatout.options import current, from_environment


def test_variables_are_read() -> None:
    read = from_environment({"FLATOUT": "0", "FLATOUT_ENGINE": "stock", "FLATOUT_STRICT": "1", "FLATOUT_FORCE": "yes"})
    assert (read.enabled, read.engine, read.strict, read.force) == (False, "stock", True, True)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"FLATOUT": "maybe"}, "Invalid value for FLATOUT. Received: 'maybe'"),
        ({"FLATOUT_ENGINE": "cuda"}, "Received: engine='cuda'. Expected one of 'auto', 'jax'"),
    ],
)
def test_bad_variables_say_what_was_received_and_expected(variables: dict[str, str], text: str) -> None:
    with pytest.raises(flatout.InvalidOption, match=text):
        from_environment(variables)


def test_blocks_nest_and_end() -> None:
    with flatout.options(engine="stock"):
        with flatout.options(strict=True) as inner:
            assert (inner.engine, inner.strict) == ("stock", True)
        assert not current().strict
    assert current().engine == "auto"


def test_unknown_options_are_named() -> None:
    with pytest.raises(flatout.InvalidOption, match="Received: 'engin'"), flatout.options(engin="jax"):
        pass
