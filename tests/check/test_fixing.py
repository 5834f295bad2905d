"""`--diff` and `--fix`: what is rewritten, and what is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from flatout import cli
from flatout.check.fixing import array_rewrites as check_rewrite

pytestmark = pytest.mark.backend("jax")  # Source is rewritten, not run.
_HEAD = "import logging\n\nimport numpy as np\nfrom keras import ops\n\nLOG = logging.getLogger()\n"


def _fixed(text: str, tmp_path: Path) -> str:
    path = tmp_path / "losses.py"
    path.write_text(text)
    cli.main(["check", str(path), "--fix", "--isolated"])
    return path.read_text()


def test_log_lines_go_and_the_rest_stays_as_it_was(tmp_path: Path) -> None:
    text = (
        f"{_HEAD}\n\ndef loss(y_true, y_pred):\n    # The error.\n    error = y_true   -   y_pred\n"
        "    LOG.debug('mean %s', float(ops.mean(error)))  # goes too\n    if error is None:\n        print('none')\n"
        "    return ops.mean(ops.square(error))  # kept\n"
    )
    fixed = _fixed(text, tmp_path)
    wanted = text.replace("    LOG.debug('mean %s', float(ops.mean(error)))  # goes too\n", "")
    assert fixed == wanted.replace("        print('none')\n", "        pass\n")


@pytest.mark.parametrize(
    "line",
    [
        "print(save(y_pred))",  # may do more than show
        "print(count := 1)",
        "print(y_pred); y_pred = y_pred * 2",
        "shown = print(y_pred)",
    ],
)
def test_a_log_line_that_does_more_stays(line: str, tmp_path: Path) -> None:
    text = (
        f"{_HEAD}\n\ndef save(x):\n    return x\n\n\ndef loss(y_true, y_pred):\n    {line}\n    return "
        "ops.mean(y_pred)\n"
    )
    assert _fixed(text, tmp_path) == text


def test_a_constant_is_loaded_above_the_function(tmp_path: Path) -> None:
    text = (
        f"{_HEAD}\n\ndef loss(y_true, y_pred):\n    # By class.\n    weight = np.loadtxt('w.txt')\n"
        "    return ops.mean(weight * ops.square(y_true - y_pred))\n"
    )
    assert _fixed(text, tmp_path) == (
        f"{_HEAD}\n\n# By class.\n_WEIGHT = np.loadtxt('w.txt')\n\n\ndef loss(y_true, y_pred):\n    weight = _WEIGHT\n"
        "    return ops.mean(weight * ops.square(y_true - y_pred))\n"
    )


@pytest.mark.parametrize(
    "body",
    [
        "    name = 'w.txt'\n    weight = np.loadtxt(name)\n",
        "    weight = np.loadtxt('w.txt')\n    weight[0] = 1.0\n",
        "    weight = np.loadtxt('w.txt')\n    weight += 1.0\n",
        "    weight = np.loadtxt('w.txt')\n    weight.sort()\n",
        "    weight = np.loadtxt(LATER)\n",
    ],
)
def test_a_constant_that_depends_on_the_call_or_is_changed_stays(body: str, tmp_path: Path) -> None:
    text = f"{_HEAD}\n\ndef loss(y_true, y_pred):\n{body}    return ops.mean(weight * y_pred)\n\n\nLATER = 'w.txt'\n"
    assert _fixed(text, tmp_path) == text


def test_a_repeated_expression_gets_a_name(tmp_path: Path) -> None:
    far = "ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1)"
    text = f"{_HEAD}\n\ndef loss(y_true, y_pred):\n    top = ops.max({far})\n    return top + ops.mean({far})\n"
    assert _fixed(text, tmp_path) == (
        f"{_HEAD}\n\ndef loss(y_true, y_pred):\n    sum_once = {far}\n    top = ops.max(sum_once)\n"
        "    return top + ops.mean(sum_once)\n"
    )


def test_a_repetition_whose_parts_are_made_inside_a_block_stays(tmp_path: Path) -> None:
    far = "ops.sum(ops.square(part[:, None] - part[None, :]), axis=-1)"
    text = (
        f"{_HEAD}\n\ndef loss(y_true, y_pred, flag=True):\n    if flag:\n        part = y_pred * 2\n"
        f"        return ops.max({far}) + ops.mean({far})\n    return ops.mean(y_pred)\n"
    )
    assert _fixed(text, tmp_path) == text


def test_fixing_twice_changes_nothing_more(tmp_path: Path) -> None:
    text = (
        f"{_HEAD}\n\ndef loss(y_true, y_pred):\n    weight = np.loadtxt('w.txt')\n    print(y_pred)\n    return "
        "ops.mean(weight * y_pred)\n"
    )
    once = _fixed(text, tmp_path)
    assert once != text
    assert _fixed(once, tmp_path) == once


def test_diff_shows_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"{_HEAD}\n\ndef loss(y_true, y_pred):\n    print(y_pred)\n    return ops.mean(y_pred)\n"
    path = tmp_path / "losses.py"
    path.write_text(text)
    assert cli.main(["check", str(path), "--diff"]) == 1
    shown = capsys.readouterr()
    assert "-    print(y_pred)\n" in shown.out
    assert "1 file would change." in shown.err
    assert path.read_text() == text
    assert [one.name for one in tmp_path.iterdir()] == ["losses.py"]


def test_an_excused_line_is_not_fixed(tmp_path: Path) -> None:
    text = (
        f"{_HEAD}\n\ndef loss(y_true, y_pred):\n    print(y_pred)  # flatout: noqa[FO203]\n    return "
        "ops.mean(y_pred)\n"
    )
    assert _fixed(text, tmp_path) == text


_MATRICES = "y_true=float32[8,3] y_pred=float32[8,3]"
_LOOP = (
    "import numpy as np\n\n\n# About the loss.\ndef loss(y_true, y_pred):\n    total = 0.0\n"
    "    for i in range(y_true.shape[0]):\n        total = total + np.abs(y_true[i] - y_pred[i]).mean()\n    return "
    "total\n"
)


def _assert_same_value(text: str, fixed: str, rows: int) -> None:
    """Both texts define `loss`; it gives the same for a batch of that many rows."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    exec(text, before)
    exec(fixed, after)
    y_true, y_pred = map(keras.ops.convert_to_tensor, np.random.default_rng(0).random((2, rows, 3), np.float32))
    assert float(after["loss"](y_true, y_pred)) == pytest.approx(float(before["loss"](y_true, y_pred)), rel=1e-5)


def test_a_loop_becomes_array_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "losses.py"
    text = (
        "from keras import ops\n\n\n# About the loss.\ndef loss(y_true, y_pred):\n    total = 0.0\n"
        "    for i in range(y_true.shape[0]):\n        total = total + ops.mean(ops.abs(y_true[i] - y_pred[i]))\n"
        "    return total\n"
    )
    path.write_text(text)
    assert cli.main(["check", str(path), "--fix", "--inputs", _MATRICES]) == 0
    fixed = path.read_text()
    assert "loss rewritten: verified equal" in capsys.readouterr().err
    assert "# About the loss." in fixed
    assert "for i in" not in fixed
    _assert_same_value(text, fixed, 5)


@pytest.mark.slow
@pytest.mark.backend("torch")
@pytest.mark.parametrize("unsafe", [False, True])
def test_a_rewrite_that_is_not_verified_is_written_if_that_is_asked_for(
    unsafe: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The original runs with none of the batches that the verifier tries: it divides by 0 for fewer than 50 rows."""
    text = _LOOP.replace("    total = 0.0\n", "    total = 0.0 / (y_true.shape[0] // 50)\n")
    path = tmp_path / "losses.py"
    path.write_text(text)
    cli.main(["check", str(path), "--fix", "--inputs", _MATRICES, *(["--unsafe-fixes"] if unsafe else [])])
    told, fixed = capsys.readouterr().err, path.read_text()
    if not unsafe:
        assert fixed == text
        assert "loss kept: FO101: The array form could not be verified: No inputs were found" in told
        return
    assert "loss rewritten: not verified" in told
    assert "for i in" not in fixed
    _assert_same_value(text, fixed, 100)


@pytest.mark.slow
def test_a_rewrite_for_one_rank_is_not_written_where_the_original_takes_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = _LOOP.replace("import numpy as np", "from keras import ops").replace(
        "np.abs(y_true[i] - y_pred[i]).mean()", "ops.mean(ops.abs(y_true[i] - y_pred[i]))"
    )
    assert _fixed(text, tmp_path) == text
    told = capsys.readouterr().err
    assert "the rewrite is not equal for y_true=" in told
    assert "--inputs" in told


def test_a_rewrite_that_needs_unnamed_objects_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The helper's table is a name of the helper's file; the rewrite would need it here."""
    (tmp_path / "columns.py").write_text(
        "import numpy as np\n\nTABLE = np.array([1.0, 2.0, 4.0], 'float32')\n\n\n"
        "def scaled(row):\n    return row * TABLE\n"
    )
    text = _LOOP.replace("import numpy as np\n", "from columns import scaled\nfrom keras import ops\n").replace(
        "np.abs(y_true[i] - y_pred[i]).mean()", "ops.mean(ops.abs(scaled(y_true[i]) - scaled(y_pred[i])))"
    )
    assert _fixed(text, tmp_path) == text
    assert "the rewrite needs objects that the file does not name: TABLE" in capsys.readouterr().err


def test_a_file_that_trains_when_imported_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_rewrite, "imported", lambda path: pytest.fail("imported"))
    text = f"{_LOOP}\n\nmodel.fit(x, y)\n"
    assert _fixed(text, tmp_path) == text
    assert "trains when it is imported" in capsys.readouterr().err
