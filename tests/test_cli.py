"""The command line itself."""

from __future__ import annotations

import argparse

import pytest

import flatout
from flatout import cli
from flatout.runner.target import Target, split_target

pytestmark = pytest.mark.backend("jax")  # The runner is the same for all of them.


@pytest.mark.parametrize(
    ("arguments", "ours", "target"),
    [
        (["a.py"], [], Target("file", "a.py")),
        (["--strict", "a.py", "--explain"], ["--strict"], Target("file", "a.py", ("--explain",))),
        (["--explain", "-m", "p.q", "-m", "x"], ["--explain"], Target("module", "p.q", ("-m", "x"))),
        (["-mp.q"], [], Target("module", "p.q")),
        (["-c", "1", "-c"], [], Target("code", "1", ("-c",))),
        (["-", "a"], [], Target("stdin", "-", ("a",))),
        (["--", "--odd.py"], [], Target("file", "--odd.py")),
        (["--version"], ["--version"], None),
    ],
)
def test_our_flags_end_where_the_program_begins(arguments: list[str], ours: list[str], target: Target | None) -> None:
    assert split_target(arguments, (), argparse.ArgumentParser()) == (ours, target)


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, text in (("--version", f"flatout {flatout.__version__}"), ("--help", "examples:")):
        with pytest.raises(SystemExit) as exit_:
            cli.main([flag])
        assert exit_.value.code == 0
        assert text in capsys.readouterr().out


def test_nothing_to_run_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "examples:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unknown", "a.py"], "unrecognized arguments: --unknown"),
        (["-m"], "argument -m: expected the module to run behind it. Received nothing."),
        (["--workers", "a.py"], "Received: workers='a.py'. Expected a number of devices"),
        (["--workers", "0", "a.py"], "Received: workers='0'."),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err
