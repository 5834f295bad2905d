"""The page cache and the process' memory, as the kernel tells them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from flatout.data.files import page_cache as residency
from flatout.data.files.page_cache import (
    MemoryWatch,
    available_memory,
    cached_bytes,
    drop_from_cache,
    memory_status,
)

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")


@pytest.mark.parametrize("asked", ["cachestat", "mincore"])
def test_cached_bytes_follow_what_is_read_and_dropped(
    tmp_path: Path, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked == "mincore":
        monkeypatch.setattr(residency, "_by_cachestat", lambda descriptor: None)
    path = tmp_path / "file"
    path.write_bytes(bytes(5_000_001))
    assert cached_bytes(path) == 5_000_001
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    drop_from_cache(descriptor)
    assert cached_bytes(path) == 0
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(descriptor, 2_500_000, 0)
    found = cached_bytes(path)
    os.close(descriptor)
    assert found is not None
    assert abs(found - 2_500_000) < 400_000


def test_an_empty_file_has_nothing_cached(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert cached_bytes(tmp_path / "empty") == 0


def test_the_watch_sees_memory_come_and_go() -> None:
    if not memory_status():
        pytest.skip("this system has no /proc")
    watch = MemoryWatch()
    held = np.ones(80_000_000, "u1")
    watch.sample()
    assert watch.growth > 70e6
    del held
    watch.sample()
    assert watch.growth < 40e6
    assert watch.peak_growth > 70e6


def test_available_memory_heeds_the_limit_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = available_memory()
    assert unlimited is not None
    assert unlimited > 0
    taken = memory_status()["VmSize"]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (taken + 5_000_000, resource.RLIM_INFINITY))
    limited = available_memory()
    assert limited is not None
    assert 0 <= limited <= 5_000_000


@pytest.mark.parametrize(
    ("controllers", "files"),
    [
        ("", ("memory.max", "memory.current", "")),
        ("memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")),
    ],
)
def test_available_memory_heeds_every_control_group_around_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controllers: str, files: tuple[str, str, str]
) -> None:
    limit, used, prefix = files
    monkeypatch.setitem(residency._GROUPS, controllers, (str(tmp_path / "groups"), limit, used, prefix))
    inner = tmp_path / "groups" / "jobs" / "mine"
    inner.mkdir(parents=True)
    for folder, most in ((inner, "max"), (inner.parent, "5000000")):
        (folder / limit).write_text(most)
        (folder / used).write_text("4000000")
        (folder / "memory.stat").write_text(f"anon 1\n{prefix}inactive_file 2000000\n{prefix}active_file 1000000\n")
    (tmp_path / "own").write_text(f"7:{controllers}:/jobs/mine\n3:cpu:/other\n")
    monkeypatch.setattr(residency, "_OWN_GROUPS", tmp_path / "own")
    assert available_memory() == 4_000_000
    # In a container the path may be the host's, and the folder that is there is the container's.
    (tmp_path / "own").write_text(f"7:{controllers}:/jobs/elsewhere\n")
    assert available_memory() == 4_000_000
    (tmp_path / "own").unlink()
    assert available_memory() != 4_000_000
