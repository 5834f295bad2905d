"""The parts of a step compiled by Inductor in a process of its own, and kept on disk by what they compute.

No lock of Python's is shared with the run, which goes on as it is meanwhile. One process compiles at a time, and ends
with this one. What Inductor itself keeps on disk goes to a folder of this process: its own lies where others can write.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from flatout.base import disk_cache
from flatout.base.options import current
from flatout.engines.contract import in_short

from . import compile_worker
from .segment import SegmentedStep

_MOST_ON_DISK, _MOST_BYTES_ON_DISK = 1000, 2**30
# What a context, libraries and kernels may take beside the run, and beside the tensors that a part is given.
_FREE_MEMORY = 4 * 2**30
# By which users set how Inductor and Triton compile; not where, of which Inductor sets some itself, or how fast.
_SETTINGS = ("TORCHINDUCTOR_", "TRITON_")
_NO_SETTINGS = ("_DIR", "_PATH", "_COMPILE_THREADS")
_FOLDERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
# Folders are named by the environment, which all threads share.
_LOADING = threading.Lock()
# Not the same lock: what is there need not wait for what another thread loads.
_NOTING = threading.Lock()

# Why steps were given up, by their files: nobody in this process need try again.
_failures: dict[tuple[Path, ...], str] = {}
# Parts by their files, the one used last at the end.
_loaded: dict[Path, Callable[..., Any]] = {}
_MOST_LOADED = 64


class Compilation:
    """A step on its way through the compiler.

    Attributes:
        functions: The parts, once they are loaded.
        failure: Why they will not be compiled; mostly empty.
    """

    def __init__(self, step: SegmentedStep):
        self.functions: list[Callable[..., Any]] | None = None
        settings = {
            "options": _options(),
            "torch": _float32_settings(),
        }
        folder, parts = disk_cache.folder_for_now("torch_steps"), step.parts
        self._files = tuple(folder / f"{_name(part, settings)}.bin" for part in parts)
        self._job = {**settings, "parts": parts, "files": [str(file) for file in self._files]}
        self._memory = {device: _FREE_MEMORY + nbytes for device, nbytes in step.memory.items()}
        self._loading: threading.Thread | None = None
        self.failure = _failures.get(self._files, "")

    @property
    def is_on_disk(self) -> bool:
        return all(file.exists() for file in self._files)

    def begin(self) -> None:
        """Have it compiled, as soon as no other one is; what fails is known when it is over."""
        if _worker().is_busy:
            return
        if _worker().had(self._job):
            # It may have ended since somebody looked.
            if not self.is_on_disk:
                self.give_up(_worker().last_words or "the process that compiled it was ended")
        elif getattr(sys, "frozen", False) or not sys.executable:
            self.give_up("this program has no Python to run a compiler")
        elif any(torch.cuda.mem_get_info(device)[0] < most for device, most in self._memory.items()):
            most = max(self._memory.values())
            self.failure = f"less than {-(-most >> 30)} GiB of the device's memory are free"
        else:
            _worker().begin(self._job)

    def give_up(self, why: str) -> None:
        """It will not be compiled in this process, and what there is of it is not to be used."""
        self.failure = _failures[self._files] = why
        for file in self._files:
            # Of a cache that can only be read.
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    def load(self) -> None:
        """Begin to load it, beside the run: Inductor is imported for the first one. What was loaded before is there."""
        if self._loading is None:
            self._loading = threading.Thread(target=self._load, name="flatout-compiled-step", daemon=True)
            self._loading.start()
            if _loaded.keys() >= set(self._files):
                self._loading.join()

    def _load(self) -> None:
        try:
            self.functions = [_part_in(file) for file in self._files]
        except (OSError, MemoryError, torch.OutOfMemoryError) as error:
            self.failure = in_short(error)
        except Exception as error:  # Of files that are damaged, or another version's.
            self.give_up(in_short(error))


def _options() -> dict[str, Any]:
    """Inductor's: the run captures CUDA graphs itself, and exactness means that nothing is rounded less often, too."""
    options: dict[str, Any] = {"triton.cudagraphs": False, "fallback_random": True}
    # What does not wait for each other shares a kernel, whatever the sizes: updates and sums are many and small.
    options |= {"combo_kernels": True, "combo_kernel_allow_mixed_sizes": 2}
    if current().precision == "exact":
        options["emulate_precision_casts"] = True
    return options


def _float32_settings() -> dict[str, Any]:
    """What torch is told of products in float32, as attributes of `torch`: by its older names as long as they hold."""
    try:
        matmul, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
        parts = {"cuda.matmul": cuda.matmul, "cudnn.conv": cudnn.conv, "cudnn.rnn": cudnn.rnn}  # type: ignore[attr-defined]
        return {f"backends.{name}.fp32_precision": part.fp32_precision for name, part in parts.items()}
    return {"set_float32_matmul_precision": matmul, "backends.cudnn.allow_tf32": convolutions}


def _name(part: dict[str, Any], rest: dict[str, Any]) -> str:
    """By what it computes, for whom, and what compiles it."""
    devices = {device for *_, device in part["layouts"].values()}
    names = sorted(torch.cuda.get_device_name(device) if "cuda" in device else device for device in devices)
    settings = {
        key: value for key, value in os.environ.items() if key.startswith(_SETTINGS) and not key.endswith(_NO_SETTINGS)
    }
    compiler = [torch.__version__, torch.version.cuda, sys.version, Path(compile_worker.__file__).read_text(), settings]
    return hashlib.sha256(json.dumps([part, rest, names, compiler], sort_keys=True).encode()).hexdigest()


def _part_in(file: Path) -> Callable[..., Any]:
    with contextlib.suppress(OSError):
        os.utime(file)
    part = _loaded.get(file)
    if part is None:
        with _LOADING:
            part = _loaded.get(file) or _from_disk(file)
    with _NOTING:
        _loaded.pop(file, None)
        _loaded[file] = part
        if len(_loaded) > _MOST_LOADED:
            del _loaded[next(iter(_loaded))]
    return part


def _from_disk(file: Path) -> Callable[..., Any]:
    inductor: Any = importlib.import_module("torch._inductor")
    # Everything is there: processes that compile would be started for nothing.
    folder = disk_cache.folder_of_process("inductor")
    with _inductors_files_in(folder), inductor.config.patch(compile_threads=1):
        return inductor.CompiledArtifact.load(path=str(file), format="binary")  # type: ignore[no-any-return]


@contextlib.contextmanager
def _inductors_files_in(folder: Path) -> Iterator[None]:
    """Where Inductor unpacks code, which it then runs; meanwhile."""
    before = {name: os.environ.get(name) for name in _FOLDERS}
    os.environ.update(dict.fromkeys(_FOLDERS, str(folder)))
    try:
        yield
    finally:
        for name, value in before.items():
            if os.environ.get(name) != str(folder):
                continue
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Worker:
    """The process, with the job that it has or had last."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._job: Any = None
        atexit.register(self.close)

    def begin(self, job: dict[str, Any]) -> None:
        self.close()
        files = [Path(file) for file in job["files"]]
        disk_cache.trim(files[0].parent, _MOST_ON_DISK, _MOST_BYTES_ON_DISK)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        environment = {
            # The run needs a core or two for itself.
            "TORCHINDUCTOR_COMPILE_THREADS": str(max(1, min(8, cores // 2))),
            **os.environ,
            **dict.fromkeys(_FOLDERS, str(disk_cache.folder_of_process("inductor"))),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", compile_worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            # Ctrl-C is for this process, which ends that one.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        self._job = job

    @property
    def is_busy(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def had(self, job: Any) -> bool:
        """Whether this was its last job."""
        return self._job is job

    @property
    def last_words(self) -> str:
        """What it told of an error, when it was over."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.read().decode(errors="replace").strip()

    def close(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None and hasattr(os, "killpg"):
            # It leads a session, with the processes in which Inductor compiles.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


@functools.cache
def _worker() -> _Worker:
    return _Worker()
