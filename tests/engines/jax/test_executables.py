"""Where compiled programs are kept: the user's word comes first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.backend("jax")
_FOLDER, _SECONDS = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
_VARIABLES = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's cache folder, in a process that has not been told where programs go."""
    import jax
    from jax._src.lru_cache import LRUCache

    monkeypatch.setattr(LRUCache, "put", LRUCache.put)
    before = {name: getattr(jax.config, name) for name in (_FOLDER, _SECONDS)}
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update(_FOLDER, None)
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


def _chosen() -> str | None:
    import jax

    from flatout.engines.jax.executables import use_persistent_cache

    use_persistent_cache()
    return jax.config.jax_compilation_cache_dir


def test_programs_are_kept_in_the_users_cache(cache: Path) -> None:
    import jax

    assert _chosen() == str(cache / "flatout" / "jax")
    assert (cache / "flatout" / "jax").is_dir()
    assert getattr(jax.config, _SECONDS) > 0


def test_a_folder_that_the_user_named_stays(cache: Path) -> None:
    import jax

    jax.config.update(_FOLDER, str(cache / "mine"))
    assert _chosen() == str(cache / "mine")


@pytest.mark.parametrize("variable", _VARIABLES)
def test_a_variable_of_jax_is_the_users_word(cache: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "0")
    assert _chosen() is None
    assert not (cache / "flatout").exists()


def test_a_cache_that_cannot_be_made_is_done_without(cache: Path) -> None:
    (cache / "flatout").write_text("a file where the folder would be")
    assert _chosen() is None


def test_a_folder_that_others_can_write_gives_no_programs(cache: Path) -> None:
    (cache / "flatout" / "jax").mkdir(parents=True)
    (cache / "flatout" / "jax").chmod(0o777)
    with pytest.warns(UserWarning, match="lets others write"):
        assert _chosen() is None


def test_a_program_appears_on_disk_whole_or_not_at_all(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """jax writes in place: what a killed process had written was read, with a warning, by all later ones."""
    from jax._src.lru_cache import LRUCache

    folder, mine = Path(str(_chosen())), cache / "mine"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _killed)
        with pytest.raises(KeyboardInterrupt):
            LRUCache(str(folder), max_size=-1).put("key", b"program")
    assert list(folder.iterdir()) == []
    for path in (folder, mine):
        programs = LRUCache(str(path), max_size=-1)
        programs.put("key", b"program")
        programs.put("key", b"another")
        assert programs.get("key") == b"program"
        assert [file.name for file in path.iterdir()] == ["key-cache"]


def _killed(handle: int) -> None:
    raise KeyboardInterrupt


def test_programs_that_were_not_used_for_longest_make_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache / "flatout" / "jax"
    folder.mkdir(parents=True)
    for age, name in enumerate("abcd"):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    # It was written first and read last.
    os.utime(folder / "d", (1e9 + 1, 1e9 - 9))
    monkeypatch.setattr("flatout.engines.jax.executables._MOST_BYTES_ON_DISK", 250)
    _chosen()
    assert sorted(file.name for file in folder.iterdir()) == ["a", "d"]


def test_a_program_is_not_that_of_another_argument_that_is_not_used() -> None:
    import numpy as np

    from flatout.engines.jax.executables import compile_shared

    def first(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return one + 1

    one = np.ones(3, np.float32)
    for other in (np.ones((4, 4), np.float32), np.ones((4, 1), np.int32)):
        assert compile_shared(first, (one, other))()(one, other).tolist() == [2, 2, 2]


def test_random_keys_may_be_constants_of_a_program() -> None:
    import jax

    from flatout.engines.jax.executables import compile_shared

    def drawn(seed: int) -> float:
        key = jax.random.key(seed)
        return float(compile_shared(lambda one: one + jax.random.uniform(key), (1.0,))()(1.0))

    assert drawn(3) == drawn(3) != drawn(4)
