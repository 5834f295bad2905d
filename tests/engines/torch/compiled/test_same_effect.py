"""A compiled step is taken only if it changes what the recorded one changes, within rounding."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from flatout.engines.torch.compiled.same_effect import difference, off_in_last_bits  # noqa: E402

BEFORE = torch.linspace(-1, 1, 50)
CHANGE = 1e-3 * torch.sin(torch.arange(50))
WANTED = BEFORE + CHANGE
OFF = off_in_last_bits(BEFORE)


def told(wanted: torch.Tensor, got: torch.Tensor, astray: torch.Tensor | None = None, **more: bool) -> str:
    """What is told of one tensor, whose change is the same from a state that is off, or another one."""
    near = OFF + (wanted - BEFORE) if astray is None else astray
    return difference([BEFORE], [wanted], [OFF], [near], [got], **more)


def test_rounding_is_no_difference() -> None:
    assert told(WANTED, WANTED + 1e-7 * torch.cos(torch.arange(50))) == ""


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (BEFORE, "off by"),
        (WANTED + 1e-4, "off by"),
        (torch.where(BEFORE > 0.9, torch.nan, WANTED), "NaN"),
    ],
)
def test_a_change_that_is_missing_or_another_one_is_told(got: torch.Tensor, words: str) -> None:
    assert words in told(WANTED, got)


@pytest.mark.parametrize("size", [3e-6, 1e-5])
def test_so_is_one_that_is_small_beside_what_it_changes(size: float) -> None:
    wanted = BEFORE + size * torch.sin(torch.arange(50))
    assert told(wanted, wanted) == ""
    assert "off by" in told(wanted, BEFORE)
    assert "off by" in told(wanted, BEFORE - (wanted - BEFORE))


def test_integers_must_be_equal() -> None:
    before, wanted = torch.tensor([1, 2]), torch.tensor([2, 3])
    assert difference([before], [wanted], [before], [wanted], [wanted]) == ""
    assert "integers" in difference([before], [wanted], [before], [wanted], [before])


def test_what_is_nothing_but_rounding_may_go_astray() -> None:
    assert told(WANTED, WANTED - 1e-3, astray=WANTED + 1e-3) == ""


def test_the_same_nan_and_half_precision() -> None:
    lost = torch.where(BEFORE > 0.9, torch.nan, WANTED)
    assert told(lost, lost) == ""
    got = WANTED + 5e-5
    assert told(WANTED, got)
    assert told(WANTED, got, in_half_precision=True) == ""


def test_last_bits() -> None:
    off = off_in_last_bits(BEFORE)
    assert 0 < (off - BEFORE).abs().max() < 1e-6
    assert torch.equal(off, off_in_last_bits(BEFORE))
    assert torch.equal(off_in_last_bits(torch.arange(3)), torch.arange(3))
