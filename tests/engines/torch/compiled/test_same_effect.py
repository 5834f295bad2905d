"""A compiled step is taken only if it changes what the recorded one changes, within rounding."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from flatout.engines.torch.compiled.same_effect import difference, off_in_last_bits  # noqa: E402

BEFORE = torch.linspace(-1, 1, 50)
WANTED = BEFORE + 1e-3 * torch.sin(torch.arange(50))


def test_rounding_is_no_difference() -> None:
    got = WANTED + 1e-7 * torch.cos(torch.arange(50))
    assert difference([BEFORE], [WANTED], [WANTED], [got]) == ""


@pytest.mark.parametrize(
    ("got", "told"),
    [
        (BEFORE, "off by"),
        (WANTED + 1e-4, "off by"),
        (torch.where(BEFORE > 0.9, torch.nan, WANTED), "NaN"),
    ],
)
def test_a_change_that_is_missing_or_another_one_is_told(got: torch.Tensor, told: str) -> None:
    assert told in difference([BEFORE], [WANTED], [WANTED], [got])


def test_integers_must_be_equal() -> None:
    before, wanted = torch.tensor([1, 2]), torch.tensor([2, 3])
    assert difference([before], [wanted], [wanted], [wanted]) == ""
    assert "integers" in difference([before], [wanted], [wanted], [before])


def test_what_is_nothing_but_rounding_may_go_astray() -> None:
    astray = WANTED + 1e-3
    assert difference([BEFORE], [WANTED], [astray], [WANTED - 1e-3]) == ""


def test_the_same_nan_and_half_precision() -> None:
    lost = torch.where(BEFORE > 0.9, torch.nan, WANTED)
    assert difference([BEFORE], [lost], [lost], [lost]) == ""
    got = WANTED + 5e-5
    assert difference([BEFORE], [WANTED], [WANTED], [got])
    assert difference([BEFORE], [WANTED], [WANTED], [got], in_half_precision=True) == ""


def test_last_bits() -> None:
    off = off_in_last_bits(BEFORE)
    assert 0 < (off - BEFORE).abs().max() < 1e-6
    assert torch.equal(off, off_in_last_bits(BEFORE))
    assert torch.equal(off_in_last_bits(torch.arange(3)), torch.arange(3))
