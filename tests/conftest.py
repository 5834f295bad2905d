"""Every test runs under the backend of KERAS_BACKEND (jax if unset), away from the user's caches and settings."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fewer_collections
import pytest

BACKEND = os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
# A shell without job control starts background work with Ctrl-C ignored; the tests that press it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
_HOME = Path(tempfile.mkdtemp(prefix="flatout-tests-"))
_KEPT, _MOST_KEPT = ("jax", "kernels"), 300 * 2**20
_BACKENDS = ("jax", "tensorflow", "torch")
_HAS_GPU = shutil.which("nvidia-smi") is not None


def _isolate() -> None:
    # Code that mistakes "the device" for "all devices" fails with several of them.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4".strip()
    # Keras reads its folder, and flatout its cache, when they are first imported: before any fixture runs.
    for variable, folder in (("HOME", "."), ("KERAS_HOME", ".keras"), ("XDG_CACHE_HOME", ".cache")):
        (_HOME / folder).mkdir(exist_ok=True)
        os.environ[variable] = str(_HOME / folder)
    ours = [name for name in os.environ if name == "FLATOUT" or name.startswith("FLATOUT_")]
    for variable in set(ours) - {"FLATOUT_CORPUS"}:  # Where test material lies is no setting.
        del os.environ[variable]
    # Tests compile programs for longer than they run them. tests/numerics has the optimizations back, GPUs keep them.
    if not _HAS_GPU:
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
        if BACKEND == "jax":
            # Without them, what compiles the fused loops takes two thirds of the time.
            os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"


def _bound_kept_programs(cache: pytest.Cache) -> None:
    for name in _KEPT:
        folder = cache.mkdir(name)
        if sum(file.stat().st_size for file in folder.iterdir()) > _MOST_KEPT:
            shutil.rmtree(folder)


def _keep_compiled_programs(cache: pytest.Cache) -> None:
    """What jax and the C++ compiler made of the same source is taken from the last run; `--cache-clear` forgets it."""
    programs, kernels = (cache.mkdir(name) for name in _KEPT)
    (_HOME / ".cache" / "flatout").mkdir()
    (_HOME / ".cache" / "flatout" / "kernels").symlink_to(kernels)
    if BACKEND == "jax" and not _HAS_GPU:
        import jax

        # Not by variables, which the scripts that tests start and kill would see: jax writes these files in place.
        jax.config.update("jax_compilation_cache_dir", str(programs))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


# Pytest reads this file also for Keras' own tests when they are run from the project's folder: those want the
# user's FLATOUT_FORCE and one device.
_IS_OURS = "flatout.runner.pytest_plugin" not in sys.modules
if _IS_OURS:
    _isolate()


def pytest_configure(config: pytest.Config) -> None:
    if not _IS_OURS or not hasattr(config, "cache"):
        return
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        _bound_kept_programs(config.cache)
    if is_worker or not config.getoption("numprocesses", None):
        _keep_compiled_programs(config.cache)
        # Before any file of tests is imported: the torch engine asks the collector who holds the user's code.
        fewer_collections.set_aside_imports()


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


def _take_turns(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `turns` to the backend whose turn it is: of a file's tests jax has the first."""
    numbers: Counter[Path] = Counter()
    taken: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        marker, backends = item.get_closest_marker("turns"), _BACKENDS
        if marker and marker.args != (0,):
            if about := item.get_closest_marker("backend"):
                backends = tuple(name for name in _BACKENDS if name in about.args)
            turn = numbers[item.path] % (marker.args[0] if marker.args else len(backends))
            numbers[item.path] += 1
            backends = backends[min(turn, len(backends) - 1) :][:1]
        (taken if BACKEND in backends else left).append(item)
    items[:] = taken
    config.hook.pytest_deselected(items=left)


def _leave_clusters(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each process of a group imports a backend: most cases are for `make test-cluster`, or are asked for by name."""
    if config.getoption("markexpr") == "cluster" or config.getoption("keyword"):
        return
    left = [item for item in items if item.get_closest_marker("cluster")]
    items[:] = [item for item in items if not item.get_closest_marker("cluster")]
    config.hook.pytest_deselected(items=left)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_clusters(config, items)
    if os.environ.get("TURNS"):
        _take_turns(config, items)
    for item in items:
        marker = item.get_closest_marker("backend")
        if marker and BACKEND not in marker.args:
            item.add_marker(pytest.mark.skip(reason=f"is about {', '.join(marker.args)}, this is {BACKEND}"))
        if item.get_closest_marker("gpu") and not _HAS_GPU:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture
def backend() -> str:
    """The Keras backend under test."""
    return BACKEND


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate work of any size."""
    monkeypatch.setenv("FLATOUT_FORCE", "1")


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    """A test that leaves flatout switched on, or its options changed, must not reach the next one."""
    yield
    import flatout

    flatout.disable()


@pytest.fixture(autouse=True)
def _verified_anew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rewrite is verified anew, except where a test asks for the verdicts that are kept."""
    if "verdicts_are_kept" not in request.fixturenames:
        from flatout.vectorize.verify import kept_verdicts

        monkeypatch.setattr(kept_verdicts, "load", lambda key: None)


@pytest.fixture(autouse=True)
def _compiled_anew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is planned otherwise because another has compiled the same program, except where it asks for that."""
    if "programs_are_known" not in request.fixturenames:
        from flatout.training.planning import known_programs

        monkeypatch.setattr(known_programs, "is_known", lambda name, side: False)


@pytest.fixture
def programs_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this test, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def verdicts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this test, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
