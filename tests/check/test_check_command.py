"""`flatout check` as a command: formats, exit codes, excuses, configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatout import cli
from flatout.check import check_config
from flatout.check.examining.findings_output import as_sarif

pytestmark = pytest.mark.backend("jax")  # The source is read, not run.
_LOOP = """\
from keras import ops


def loss(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total / y_true.shape[0]
"""
_CLEAN = "from keras import ops\n\n\ndef loss(y_true, y_pred):\n    return ops.mean(ops.square(y_true - y_pred))\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(_LOOP)
    (tmp_path / "clean.py").write_text(_CLEAN)
    return tmp_path


def _rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, object]]]:
    code = cli.main(["check", *arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_json_has_the_promised_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = _rows(capsys, "slow.py", "--backend", "torch")
    assert code == 1
    (row,) = rows
    assert {"code", "path", "line", "column", "message", "severity", "fix"} <= set(row)
    assert (row["code"], row["path"], row["line"], row["column"]) == ("FO101", "slow.py", 6, 5)
    assert row["severity"] == "slow"
    assert "vectorized_map" in str(row["fix"])


def test_a_clean_file_exits_with_zero(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _rows(capsys, "clean.py") == (0, [])
    assert cli.main(["check", "clean.py"]) == 0
    assert "Nothing found" in capsys.readouterr().out


def test_text_has_the_place_the_reason_and_the_rewrite(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "slow.py", "--backend", "jax"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("slow.py:6:5: FO101 [slow] This loop runs over the samples of the batch")
    assert "    why: " in out
    assert "    fix: " in out
    assert out.endswith("1 finding on jax: 1 slow.\n")


def test_sarif_is_what_code_scanning_reads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "slow.py", "--format", "sarif", "--backend", "torch"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "FO101"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "slow.py"
    assert place["region"] == {"startLine": 6, "startColumn": 5}
    assert result["level"] == "warning"
    assert json.loads(as_sarif([]))["runs"][0]["results"] == []


def test_folders_are_searched_and_caches_are_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for hidden in (".venv", "__pycache__", "build"):
        (folder / hidden).mkdir()
        (folder / hidden / "slow.py").write_text(_LOOP)
    code, rows = _rows(capsys, ".")
    assert code == 1
    assert [row["path"] for row in rows] == ["slow.py"]


@pytest.mark.parametrize(
    ("comment", "count"),
    [
        ("# flatout: noqa", 0),
        ("# flatout: noqa[FO101]", 0),
        ("# flatout: noqa[FO102, FO101] short batches", 0),
        ("# flatout: noqa[FO102]", 1),
        ("# noqa", 1),
        ("# flatout:noqa[fo101]", 0),
    ],
)
def test_a_comment_excuses_its_line(comment: str, count: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "slow.py").write_text(_LOOP.replace("shape[0]):", f"shape[0]):  {comment}"))
    assert len(_rows(capsys, "slow.py")[1]) == count


def test_a_comment_inside_the_body_does_not_excuse_the_loop(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "slow.py").write_text(_LOOP.replace("y_pred[i]))", "y_pred[i]))  # flatout: noqa"))
    assert len(_rows(capsys, "slow.py")[1]) == 1


def test_select_ignore_and_severity(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "slow.py").write_text(
        _LOOP + "\n\ndef log_loss(y_true, y_pred):\n    print(y_pred)\n    return loss(y_true, y_pred)\n"
    )
    every = {row["code"] for row in _rows(capsys, "slow.py")[1]}
    assert every == {"FO101", "FO203"}
    assert {row["code"] for row in _rows(capsys, "slow.py", "--select", "FO2")[1]} == {"FO203"}
    assert {row["code"] for row in _rows(capsys, "slow.py", "--ignore", "FO101,FO3")[1]} == {"FO203"}
    assert {row["code"] for row in _rows(capsys, "slow.py", "--severity", "wrong", "--backend", "jax")[1]} == {"FO203"}


def test_pyproject_is_read_from_the_folder_of_the_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text('[tool.flatout]\nignore = ["FO101"]\nbackend = "jax"\n')
    assert _rows(capsys, "slow.py") == (0, [])
    assert _rows(capsys, "slow.py", "--isolated")[0] == 1
    (folder / "pyproject.toml").write_text('[tool.flatout.per-file-ignores]\n"slow.py" = ["FO1"]\n')
    assert _rows(capsys, "slow.py") == (0, [])
    (folder / "pyproject.toml").write_text('[tool.flatout]\nexclude = ["slow*"]\n')
    assert _rows(capsys, ".") == (0, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.flatout]\nselct = []\n", "Unknown key in [tool.flatout]"),
        ('[tool.flatout]\nselect = ["FO9"]\n', "Unknown rule"),
        ('[tool.flatout]\nbackend = "numpy"\n', "Unknown backend"),
        ('[tool.flatout]\nseverity = "bad"\n', "Unknown severity"),
        ("[tool.flatout]\nignore = [1]\n", "Expected a list of texts"),
        ("[tool.flatout\n", "not valid TOML"),
    ],
)
def test_a_wrong_configuration_is_one_clear_sentence(
    text: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text(text)
    assert cli.main(["check", "slow.py"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Received" in error or "received" in error


def test_wrong_arguments_exit_with_two(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "absent.py"]) == 2
    assert "No such file or folder: absent.py" in capsys.readouterr().err
    (folder / "broken.py").write_text("def loss(:\n")
    assert cli.main(["check", "broken.py"]) == 2
    assert "not valid Python" in capsys.readouterr().err
    assert cli.main(["check", "slow.py", "--select", "XX1"]) == 2
    assert "Unknown rule in --select" in capsys.readouterr().err
    for arguments in (["check"], ["check", "slow.py", "--backend", "numpy"]):
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        assert stopped.value.code == 2


def test_the_backend_is_the_one_that_keras_would_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert check_config.current_backend() == "torch"
    monkeypatch.delenv("KERAS_BACKEND")
    assert check_config.current_backend() == "tensorflow"
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    assert check_config.current_backend() == "jax"
    (tmp_path / "keras.json").write_text("not json")
    assert check_config.current_backend() == "tensorflow"


def test_explain_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--explain", "fo303"]) == 0
    assert capsys.readouterr().out.startswith("# FO303: Python state while tracing")
    assert cli.main(["check", "--explain", "all"]) == 0
    assert "FO504" in capsys.readouterr().out
    assert cli.main(["check", "--explain", "FO999"]) == 2


def test_a_script_called_check_can_still_be_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "check").write_text("print('ran')")
    assert cli.main(["./check"]) == 0
    assert "ran" in capfd.readouterr().out
