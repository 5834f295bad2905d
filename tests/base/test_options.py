"""Options come from variables, from enable() and from with-blocks, and bad values are told at once."""

from __future__ import annotations

import pytest

import flatout
from flatout.base.options import current, from_environment


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


def test_a_block_overrides_what_was_set_for_the_process() -> None:
    flatout.enable(force=True, engine="stock")
    try:
        with flatout.options(force=False) as chosen:
            assert (chosen.force, chosen.engine) == (False, "stock")
        assert current().force
    finally:
        flatout.disable()


def test_unknown_options_are_named() -> None:
    with pytest.raises(flatout.InvalidOption, match="Received: 'engin'"), flatout.options(engin="jax"):
        pass


def test_data_and_precision_are_read_from_the_environment() -> None:
    chosen = from_environment({"FLATOUT_DATA": "streamed", "FLATOUT_PRECISION": "fast", "FLATOUT_VRAM": "8GB"})
    assert (chosen.data, chosen.precision, chosen.budget(10**12)) == ("streamed", "fast", 8 * 10**9)


@pytest.mark.parametrize(("text", "budget"), [("0.5", 500), ("1", 1000), ("2kB", 2000), ("1KiB", None), ("1kiB", 1024)])
def test_the_budget_is_a_share_or_an_amount(text: str, budget: int | None) -> None:
    if budget is None:
        with pytest.raises(flatout.InvalidOption, match="vram"):
            flatout.Options(vram=text)
    else:
        assert flatout.Options(vram=text).budget(1000) == budget


@pytest.mark.parametrize("text", ["", "much", "1.5", "-1GB", "8 bananas"])
def test_other_budgets_are_refused_with_what_was_received(text: str) -> None:
    with pytest.raises(flatout.InvalidOption, match="Received: vram="):
        flatout.Options(vram=text)
