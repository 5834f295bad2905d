"""A cache that others can write is not used, and whoever runs is told so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.base import disk_cache

pytestmark = [
    pytest.mark.backend("jax"),
    pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX"),
]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "flatout"


def test_a_new_cache_is_the_users_alone_whatever_the_mask(cache: Path) -> None:
    before = os.umask(0)
    try:
        assert disk_cache.folder("jax") == cache / "jax"
    finally:
        os.umask(before)
    assert [folder.stat().st_mode & 0o777 for folder in (cache, cache / "jax")] == [0o700, 0o700]
    assert disk_cache.folder("jax") == cache / "jax"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o720, 0o702])
@pytest.mark.parametrize("part", [".", "jax"])
def test_one_that_others_can_write_is_refused(cache: Path, part: str, mode: int) -> None:
    (cache / "jax").mkdir(parents=True)
    (cache / part).chmod(mode)
    with pytest.warns(UserWarning, match=f"mode {mode:o} lets others write"), pytest.raises(PermissionError):
        disk_cache.folder("jax")


def test_one_that_others_can_only_read_is_used(cache: Path) -> None:
    (cache / "jax").mkdir(parents=True)
    (cache / "jax").chmod(0o755)
    assert disk_cache.folder("jax") == cache / "jax"


def test_one_of_somebody_else_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_cache.folder("jax")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    if mine == 0:
        # What root could have changed is as safe as everything else on the machine.
        assert disk_cache.folder("jax") == cache / "jax"
        os.chown(cache, 12345, -1)
        mine = 12345
    with pytest.warns(UserWarning, match=f"belongs to user {mine}"), pytest.raises(PermissionError):
        disk_cache.folder("jax")


def test_what_needs_a_folder_has_one_of_its_own_then(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.warns(UserWarning, match="keeps nothing in its cache"):
        found = disk_cache.folder_for_now("kernels")
    assert cache not in found.parents
    assert found.stat().st_mode & 0o777 == 0o700
    with pytest.warns(UserWarning, match="keeps nothing in its cache"):
        assert disk_cache.folder_for_now("kernels") == found


def test_a_folder_of_a_process_outlives_its_forks_and_goes_with_it() -> None:
    script = """
import os, sys
from flatout.base.disk_cache import folder_of_process
folder = folder_of_process("test")
if os.fork() == 0:
    sys.exit()
os.wait()
print(folder.is_dir(), folder)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    was_there, _, folder = done.stdout.strip().partition(" ")
    assert was_there == "True"
    assert not Path(folder).exists()
