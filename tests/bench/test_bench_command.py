"""`flatout bench` and `flatout demo` as a user starts them, in a process of their own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import scripts

from flatout import cli
from flatout.bench import fashion_mnist
from flatout.bench.workloads import WORKLOADS
from flatout.native.launch.launch_cpu import compiler

from .test_fashion_mnist import write_idx


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    made = fashion_mnist.stand_in(640, 128)
    for name, images, labels in (("train", made.x_train, made.y_train), ("t10k", made.x_test, made.y_test)):
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", (images * 255).astype("uint8"))
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels)
    return folder


def run(folder: Path, data: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {fashion_mnist.VARIABLE: str(data), "FLATOUT_FORCE": "1", **environment}
    return scripts.run(folder, "-m", "flatout", *arguments, **settings)


@pytest.mark.slow
@pytest.mark.backend("torch")
@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate the kernels with")
def test_bench_native_has_every_engine_in_one_run(tmp_path: Path, data: Path) -> None:
    arguments = ("native", "--steps", "1", "--epochs", "2", "--repeats", "1", "--json", "out.json")
    done = run(tmp_path, data, "bench", *arguments, FLATOUT_NATIVE="cpu")
    assert done.returncode == 0, done.stderr
    lines = {line["way"]: line for line in json.loads((tmp_path / "out.json").read_text())["results"]}
    ways = [
        "stock Keras",
        "flatout, engine torch",
        "flatout, native, exact",
        "flatout, native, fast",
        "a kernel a stage, alone",
        "one kernel alone, exact, float32",
        "one kernel alone, exact, pixels",
        "one kernel alone, fast, float32",
    ]
    assert list(lines) == ways
    assert all(line["us_per_step"] > 0 and "ran on" not in line["note"] for line in lines.values())
    fused = [way for way, line in lines.items() if "one kernel, 16 blocks" in line["note"]]
    assert fused == [*ways[2:4], *ways[5:]]
    assert lines[ways[2]]["loss"] == pytest.approx(lines[ways[0]]["loss"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.backend("jax")
def test_bench_prints_a_table_and_writes_json(tmp_path: Path, data: Path, backend: str) -> None:
    arguments = ("seed", "--steps", "20", "--epochs", "2", "--repeats", "2", "--against", "scan", "--json", "out.json")
    done = run(tmp_path, data, "bench", "--backends", "jax", *arguments)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"seed\s+{backend}", done.stdout)
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["format"] == 1
    assert written["versions"]["keras"].startswith("3.")
    (result,) = written["results"]
    assert (result["workload"], result["backend"], result["steps"], result["batch_size"]) == ("seed", backend, 20, 32)
    for side in ("stock", "flatout"):
        assert len(result[side]["epochs_us_per_step"]) == 2
        assert result[side]["us_per_step"] > 0
        assert result[side]["first_epoch_seconds"] > 0
    assert result["ratio"] == pytest.approx(result["stock"]["us_per_step"] / result["flatout"]["us_per_step"])
    assert result["scan_us_per_step"] > 0
    assert result["agrees"]
    assert result["stock_spread"] == 0
    assert result["stock"]["loss"] == pytest.approx(result["flatout"]["loss"], rel=1e-4)
    assert result["accelerated"]
    assert result["engine"] == backend


@pytest.mark.slow
@pytest.mark.backend("jax")
def test_work_left_to_stock_keras_gives_its_reason(tmp_path: Path, data: Path) -> None:
    arguments = ("seed", "--steps", "4", "--epochs", "2", "--repeats", "1")
    done = run(tmp_path, data, "bench", *arguments, FLATOUT="0")
    assert done.returncode == 0, done.stderr
    assert "seed ran on stock Keras. flatout is switched off (FLATOUT=0)." in done.stdout


@pytest.mark.slow
@pytest.mark.backend("jax")
def test_demo_prints_both_histories_and_writes_the_picture(tmp_path: Path, data: Path, backend: str) -> None:
    done = run(tmp_path, data, "demo", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert backend in done.stdout
    assert "times faster" in done.stdout
    assert (tmp_path / "demo" / "demo.svg").read_text().startswith("<svg")
    assert "</html>" in (tmp_path / "demo" / "demo.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sead"], "Unknown workload. Received: 'sead'. Expected one of seed,"),
        (["seed", "--epochs", "1"], "Expected at least 2"),
        (["native", "--epochs", "1"], "Expected at least 2"),
        (["--backends", "theano"], "Unknown backend. Received: theano"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_help_names_every_workload(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "--help"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in WORKLOADS)


@pytest.mark.slow
@pytest.mark.backend("jax")
def test_damaged_data_are_an_error_not_a_traceback(tmp_path: Path, data: Path) -> None:
    (data / "train-labels-idx1-ubyte.gz").write_bytes(b"nothing")
    done = run(tmp_path, data, "demo")
    assert done.returncode == 2
    assert "train-labels-idx1-ubyte.gz is damaged" in done.stderr
    assert "Traceback" not in done.stderr
