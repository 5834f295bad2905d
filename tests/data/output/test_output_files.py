"""Files of predictions after a crash at any call, on a full disk, in a copied folder, with links laid in their way."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.data.output import manifest
from flatout.data.output import output_files as output
from flatout.data.output.output_files import OutputFiles
from flatout.data.output.output_paths import OutputPaths

pytestmark = pytest.mark.backend("torch")  # Nothing of it depends on the backend.
STEPS, ROWS = 6, 3
SAME = {"model": "of layers"}


@pytest.fixture(autouse=True)
def synced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SECONDS_BETWEEN_SYNCS", 0.0)
    # Processes die here, and not machines.
    monkeypatch.setattr(os, "fsync", lambda file: None)


def outputs(step: int) -> dict[str, np.ndarray]:
    rows = np.arange(ROWS * step, ROWS * (step + 1))
    return {"a": np.stack([rows, -rows], 1).astype("float32"), "b": rows.astype("int64")}


WHOLE = {name: np.concatenate([outputs(step)[name] for step in range(STEPS)]) for name in ("a", "b")}


def opened(out: Any, fingerprint: dict[str, str] = SAME, obstacle: str | None = None) -> OutputFiles:
    return OutputFiles(OutputPaths(out), fingerprint, obstacle)


def predict(out: Any, stop: int = STEPS) -> OutputFiles:
    """All steps that are not done yet; up to `stop`, at which it is interrupted."""
    with opened(out) as files:
        for step in range(files.steps, stop):
            files.append([outputs(step)])
        if stop < STEPS:
            raise KeyboardInterrupt
    return files


def interrupted(out: Any, stop: int = 4) -> None:
    with pytest.raises(KeyboardInterrupt):
        predict(out, stop)


def assert_whole(files: OutputFiles, folder: Path) -> None:
    for name, expected in WHOLE.items():
        np.testing.assert_array_equal(np.load(folder / f"{name}.npy"), expected)
        np.testing.assert_array_equal(files.result()[name], expected)
    assert sorted(path.name for path in folder.iterdir()) == ["a.npy", "b.npy"]


class Killed(BaseException):
    pass


def test_killed_at_any_call_it_goes_on_to_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call that reaches the disk, and in the middle of every write."""
    calls = ("open", "pwrite", "fsync", "ftruncate", "replace", "unlink")
    real = {name: getattr(os, name) for name in calls}

    def killed_at(number: int) -> dict[str, Any]:
        counter = itertools.count()

        def call(name: str, *arguments: Any, **named: Any) -> Any:
            done = next(counter)
            if done >= number:
                if done == number and name == "pwrite":
                    file, data, position = arguments
                    real[name](file, bytes(data)[: len(data) // 2], position)
                raise Killed
            return real[name](*arguments, **named)

        return {name: lambda *args, name=name, **named: call(name, *args, **named) for name in calls}

    for number in itertools.count():
        folder = tmp_path / f"{number}"
        folder.mkdir()
        files = opened(folder)
        with monkeypatch.context() as patched:
            for name, function in killed_at(number).items():
                patched.setattr(os, name, function)
            try:
                # Not as a context: who is killed cleans up nothing.
                for step in range(STEPS):
                    files.append([outputs(step)])
                files._finish()
                is_killed = False
            except Killed:
                is_killed = True
        files._close()
        if not is_killed:
            break
        record = manifest.load(folder / "predictions.partial.json")
        files = opened(folder)
        assert files.steps == (0 if record is None or files.started_anew else record.steps)
        for row in range(files.steps):
            for kept, again in files.beside([outputs(row)], ROWS * row, ROWS * (row + 1)) or []:
                np.testing.assert_array_equal(kept, again)
        files._close()
        assert_whole(predict(folder), folder)
    assert number > 50


@pytest.mark.parametrize("damage", ["cut short", "a byte", "empty", "another's", "nested", "bytes", "a list", "a link"])
def test_a_damaged_record_starts_anew_and_says_so(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    interrupted(folder)
    record = folder / "predictions.partial.json"
    text = record.read_bytes()
    cases = {
        "cut short": [text[:count] for count in range(0, len(text), 7)],
        "a byte": [text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :] for at in range(0, len(text), 5)],
        "empty": [b""],
        "another's": [json.dumps({"steps": 4}).encode()],
        "nested": [b"[" * 100_000],
        "bytes": [bytes(range(256))],
        "a list": [b"[1, 2]"],
        "a link": [text],
    }
    for case in cases[damage]:
        record.unlink()
        if damage == "a link":
            (tmp_path / "elsewhere.json").write_bytes(case)
            record.symlink_to(tmp_path / "elsewhere.json")
        else:
            record.write_bytes(case)
        files = opened(folder)
        files._close()
        try:
            is_whole = json.loads(case) == json.loads(text) and damage != "a link"
        except (ValueError, RecursionError):
            is_whole = False
        assert files.steps == (4 if is_whole else 0)
        assert is_whole or "is damaged or a link" in (files.started_anew or "")
    assert_whole(predict(folder), folder)
    assert not (tmp_path / "elsewhere.json").exists() or (tmp_path / "elsewhere.json").read_bytes() == text


def test_in_a_copied_folder_the_copy_is_written(tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    first.mkdir()
    interrupted(first)
    shutil.copytree(first, copy)
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    files = predict(copy)
    assert files.started_anew is None
    assert_whole(files, copy)
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before
    assert str(tmp_path) not in before["predictions.partial.json"].decode()
    assert_whole(predict(first), first)


def test_in_a_copy_made_of_hard_links_nothing_of_the_original_is_written(tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    first.mkdir()
    interrupted(first)
    shutil.copytree(first, copy, copy_function=os.link)
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    assert_whole(predict(copy), copy)
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before


def test_with_other_files_it_starts_anew(tmp_path: Path) -> None:
    interrupted({"a": tmp_path / "a.npy", "b": tmp_path / "b.npy"})
    interrupted({"a": tmp_path / "other.npy", "b": tmp_path / "c.npy"})
    files = predict({"a": tmp_path / "a.npy", "b": tmp_path / "c.npy"})
    assert files.started_anew == "it went to other files"
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), WHOLE["b"])


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["a.npy.partial", "predictions.partial.json", "predictions.partial.json.new", "a.npy"])
def test_no_link_is_followed(tmp_path: Path, name: str, link: Any, goes_on: bool) -> None:
    folder, victim = tmp_path / "out", tmp_path / "victim.txt"
    folder.mkdir()
    if goes_on:
        interrupted(folder)
        (folder / name).unlink(missing_ok=True)
    victim.write_text("precious\n" * 100)
    link(victim, folder / name)
    assert_whole(predict(folder), folder)
    assert victim.read_text() == "precious\n" * 100
    assert not any(path.is_symlink() for path in folder.iterdir())


def test_a_link_to_nowhere_makes_no_file_there(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.npy.partial").symlink_to(tmp_path / "new")
    assert_whole(predict(tmp_path / "out"), tmp_path / "out")
    assert not (tmp_path / "new").exists()


def test_who_comes_second_spoils_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as first:
        first.append([outputs(0)])
        # As anybody would who does not go on, and as one who does.
        for fingerprint in ({"model": "other"}, SAME):
            with (
                pytest.raises(BlockingIOError, match="Another prediction is being written to"),
                opened(tmp_path, fingerprint) as second,
            ):
                second.append([outputs(0)])
            assert manifest.load(tmp_path / "predictions.partial.json") is not None
        for step in range(1, STEPS):
            first.append([outputs(step)])
    assert_whole(first, tmp_path)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Lets so many bytes be written, and then none."""
    real = os.pwrite

    def fill(room: int, has_room_for_record: bool) -> None:
        def write(file: int, data: Any, position: int) -> int:
            nonlocal room
            if room <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            count = real(file, data[:room], position)
            room -= count
            return count

        def dump(content: Any, file: Any, indent: int) -> None:
            file.write("{")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "pwrite", write)
        if not has_room_for_record:
            monkeypatch.setattr(json, "dump", dump)

    yield fill
    monkeypatch.undo()


@pytest.mark.parametrize("room", [0, 1, 100, 150, 287, 288, 300])
@pytest.mark.parametrize("has_room_for_record", [True, False])
def test_a_full_disk_promises_what_comes_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_disk: Any, room: int, has_room_for_record: bool
) -> None:
    monkeypatch.setattr(output, "SECONDS_BETWEEN_SYNCS", 60.0)
    full_disk(room, has_room_for_record)
    with pytest.raises(OSError, match="is full") as caught:
        predict(tmp_path)
    assert caught.value.errno == errno.ENOSPC
    # A step takes 48 bytes.
    saved = room // 48 if has_room_for_record else 0
    assert ("goes on from there" if saved else "starts anew, because nothing is saved") in str(caught.value)
    assert not (tmp_path / "predictions.partial.json.new").exists()
    monkeypatch.undo()
    files = opened(tmp_path)
    assert files.steps == min(saved, STEPS)
    files._close()
    assert_whole(predict(tmp_path), tmp_path)


def test_rows_that_did_not_reach_the_disk_are_not_spoken_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([True])

    def fsync(file: int) -> None:
        if os.fstat(file).st_size == 128 + 2 * 24 and next(failures, False):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    interrupted(tmp_path, 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="Input/output error"):
            predict(tmp_path)
    files = opened(tmp_path)
    assert files.steps == 1
    files._close()
    assert_whole(predict(tmp_path), tmp_path)
