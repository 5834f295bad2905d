"""`--run`: what a trace shows, whatever the source looks like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatout import cli
from flatout.check.probing import live_functions as inputs

_HEAD = "import keras\nimport numpy as np\nfrom keras import ops\n\n\n"


def _run(
    text: str, tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str], *more: str
) -> dict[str, dict[str, object]]:
    path = tmp_path / "losses.py"
    path.write_text(_HEAD + text)
    cli.main(["check", str(path), "--run", "--format", "json", "--isolated", "--backend", backend, *more])
    return {row["code"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_batch_loop_grows_linearly(tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "def loss(y_true, y_pred):\n    return sum(ops.mean(ops.abs(y_true[i] - y_pred[i])) for i in "
        "range(y_true.shape[0]))\n"
    )
    found = _run(text, tmp_path, backend, capsys)
    assert found["FO101"]["seen"] == "source and trace"
    assert "grow linearly with the batch" in str(found["FO101"]["message"])


def test_what_is_not_selected_is_not_reported_of_a_trace_either(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "def loss(y_true, y_pred):\n    return ops.mean(y_true) + 0.0 * ops.mean(y_pred)\n"
    assert set(_run(text, tmp_path, backend, capsys)) == {"FO501"}
    assert _run(text, tmp_path, backend, capsys, "--select", "FO1") == {}
    assert _run(text, tmp_path, backend, capsys, "--ignore", "FO501") == {}


@pytest.mark.backend("jax", "torch")
def test_a_loop_that_no_parser_sees_is_found_by_its_operations(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "def rows(x):\n    return getattr(x, 'shape')[0]\n\n\ndef loss(y_true, y_pred):\n    total = 0.0\n    "
        "for i in range(eval('rows(y_pred)')):\n        for j in range(eval('rows(y_pred)')):\n"
        "            total = total + ops.sum(ops.abs(y_pred[i] - y_pred[j]))\n    return total\n"
    )
    found = _run(text, tmp_path, backend, capsys)
    assert (found["FO103"]["seen"], found["FO103"]["line"]) == ("trace", 12)
    assert "power 2" in str(found["FO103"]["message"])


def test_array_code_is_constant_and_silent(tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "def loss(y_true, y_pred):\n    return ops.mean(ops.square(y_true - y_pred))\n"
    assert _run(text, tmp_path, backend, capsys) == {}


def test_a_host_read_is_counted_or_stops_the_trace(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "def loss(y_true, y_pred):\n    return ops.mean(ops.abs(y_true - y_pred)) / float(ops.max(y_true))\n"
    row = _run(text, tmp_path, backend, capsys)["FO201"]
    assert row["seen"] == "source and trace"
    wanted = "waits for the device once" if backend == "torch" else f"Tracing stops here on {backend}"
    assert wanted in str(row["message"])


def test_state_that_a_call_changes_is_found(tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "SEEN = []\n\n\ndef loss(y_true, y_pred):\n    getattr(SEEN, 'append')(1)\n    return "
        "ops.mean(ops.abs(y_true - y_pred))\n"
    )
    row = _run(text, tmp_path, backend, capsys)["FO303"]
    assert (row["seen"], row["severity"]) == ("trace", "wrong")
    assert f"the body ran {3 if backend == 'torch' else 1} times in 3 steps" in str(row["message"])


def test_random_numbers_of_numpy_are_frozen_where_there_is_a_trace(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "def loss(y_true, y_pred):\n    return ops.mean(ops.abs(y_true - y_pred)) * np.random.uniform(1.0, 2.0)\n"
    row = _run(text, tmp_path, backend, capsys)["FO304"]
    assert row["severity"] == ("info" if backend == "torch" else "wrong")
    assert ("two compiled calls do not" in str(row["message"])) is (backend != "torch")


def test_a_captured_variable_is_frozen_on_jax_only(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "GATE = keras.Variable(1.0)\n\n\ndef loss(y_true, y_pred):\n    return GATE * ops.mean(ops.abs(y_true - "
        "y_pred))\n\n\n"
        "class Open(keras.callbacks.Callback):\n    def on_epoch_end(self, epoch, logs=None):\n        "
        "GATE.assign(epoch)\n"
    )
    row = _run(text, tmp_path, backend, capsys)["FO305"]
    assert ("Verified" in str(row["message"])) is (backend == "jax")
    assert row["severity"] == ("wrong" if backend == "jax" else "info")


def test_a_number_that_a_callback_changes_is_frozen(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "ALPHA = 1.0\n\n\ndef loss(y_true, y_pred):\n    return ALPHA * ops.mean(ops.abs(y_true - y_pred))\n\n\n"
        "class Anneal(keras.callbacks.Callback):\n    def on_epoch_end(self, epoch, logs=None):\n"
        "        global ALPHA\n        ALPHA = 0.5\n"
    )
    row = _run(text, tmp_path, backend, capsys)["FO303"]
    assert ("Verified" in str(row["message"])) is (backend != "torch")


def test_gradients_that_are_zero_or_nan_are_found(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    zero = "def loss(y_true, y_pred):\n    return ops.mean(y_true) + 0.0 * ops.mean(y_pred)\n"
    assert _run(zero, tmp_path, backend, capsys)["FO501"]["seen"] == "trace"
    nan = (
        "def loss(y_true, y_pred):\n    far = ops.sum(ops.square(y_pred[:, None] - y_pred[None, :]), axis=-1)\n"
        "    return ops.mean(far**0.5)\n"
    )
    assert "100% of the gradient is NaN" in str(_run(nan, tmp_path, backend, capsys)["FO502"]["message"])


@pytest.mark.backend("torch")
def test_a_loss_that_changes_an_argument_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "def loss(y_true, y_pred):\n    y_pred.{}\n    return ops.mean(ops.square(y_true - y_pred))\n"
    path = tmp_path / "losses.py"
    path.write_text(_HEAD + text.format("add_(1.0)"))
    cli.main(["check", str(path), "--run", "--isolated", "--backend", "torch"])
    assert "loss was not traced: it changes its argument 'y_pred' in place." in capsys.readouterr().err
    # With these numbers nothing changes; a leaf cannot be clamped, which is not to say that there is no gradient.
    inputs = ("--inputs", "y_true=float32[8,3] y_pred=float32[8,3]")
    assert "FO501" not in _run(text.format("clamp_(-9.0, 9.0)"), tmp_path, "torch", capsys, *inputs)


@pytest.mark.backend("tensorflow", "torch")
def test_a_column_against_a_matrix_is_found(tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "def loss(y_true, y_pred):\n    guess = y_pred[:, 0]\n    return ops.mean(ops.square(y_true - guess))\n"
    row = _run(text, tmp_path, backend, capsys, "--inputs", "y_true=float32[8,1] y_pred=float32[8,1]")["FO503"]
    assert (row["seen"], row["line"]) == ("trace", 8)


def test_loss_objects_are_traced_and_output_of_the_file_is_kept_apart(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "print('imported')\n\n\nclass Rows(keras.losses.Loss):\n    def call(self, y_true, y_pred):\n"
        "        return ops.stack([ops.mean(ops.abs(t - p)) for t, p in zip(list(y_true), list(y_pred))])\n"
    )
    row = _run(text, tmp_path, backend, capsys)["FO101"]
    assert row["function"] == "Rows.call"
    assert "trace" in str(row["seen"]) or backend == "tensorflow"


def test_a_file_that_fails_on_import_is_one_sentence(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "losses.py"
    path.write_text(f"{_HEAD}def loss(y_true, y_pred):\n    return y_pred\n\n\n1 / 0\n")
    assert cli.main(["check", str(path), "--run", "--backend", backend]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_another_backend_than_the_process_has_is_refused(
    tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import keras

    other = "torch" if backend != "torch" else "jax"
    path = tmp_path / "losses.py"
    path.write_text(f"{_HEAD}def loss(y_true, y_pred):\n    return y_pred\n")
    assert keras.config.backend() == backend
    assert cli.main(["check", str(path), "--run", "--backend", other]) == 2
    assert "needs a process with its own backend" in capsys.readouterr().err


@pytest.mark.backend("jax")
def test_inputs_are_described_in_the_file_or_by_an_option() -> None:
    described = inputs.described("# id: A1\n# inputs: y_true=int32[12] y_pred=float32[12, 4] table=float32[3]\n")
    assert described is not None
    drawn = described.draw(5)
    assert {name: (array.dtype.name, array.shape) for name, array in drawn.items()} == {
        "y_true": ("int32", (5,)),
        "y_pred": ("float32", (5, 4)),
        "table": ("float32", (3,)),
    }
    assert inputs.described("nothing") is None
    with pytest.raises(ValueError, match="The inputs cannot be read"):
        inputs.parse("8x10")
