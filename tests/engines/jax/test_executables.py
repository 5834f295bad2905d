"""Where compiled programs are kept: the user's word comes first."""

from __future__ import annotations

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
