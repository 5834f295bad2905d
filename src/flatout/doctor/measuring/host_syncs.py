"""Counts where values of the device are read on the host, which waits for the device: the user's lines, and Keras'.

The methods by which a tensor becomes a number or an array are wrapped meanwhile. On a CPU nothing waits; what is
counted there is what would wait on a GPU. Compiling reads constants too, so count steps after the first.

Not seen: conversions inside of numpy's C code (`np.add(tensor, 1)`) and by `pandas`, on tensorflow and on jax on a CPU.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from flatout.base.when_used import jax, keras, tf, torch

from .user_frames import CodePlace, place_beside, place_of

_NUMBERS = {
    "__bool__": "bool()",
    "__int__": "int()",
    "__float__": "float()",
    "__complex__": "complex()",
    "__index__": "index",
}
_METHODS = {**_NUMBERS, "item": ".item()", "tolist": ".tolist()", "numpy": ".numpy()", "__array__": "np.asarray()"}
_CUDA_WARNING = "called a synchronizing CUDA operation"
_MODE_WARNING = "Synchronization debug mode is a prototype"


@dataclass(frozen=True)
class HostSync:
    """A line that reads values of the device on the host.

    Attributes:
        path: The file.
        line: The line in it.
        source: Its text.
        count: How many times.
        how: By what, such as ".item()", or several of them.
        part: Of the fit, as in `HotLine`.
        is_of_user: Whether the line is the user's; else it is Keras', or a library's.
    """

    path: str
    line: int
    source: str
    count: int
    how: str
    part: str = "step"
    is_of_user: bool = True


@dataclass(frozen=True)
class _Reads:
    """What reads a tensor on a backend: methods of its class, functions of modules; and which tensors count."""

    cls: Any
    methods: dict[str, str]
    functions: tuple[tuple[Any, str, str], ...]
    waits: Callable[[Any], bool]


class HostSyncs:
    """Counts reads of device values on the host, of all threads, while it is entered.

    Example:
        with HostSyncs() as reads:
            model.fit(x, y)
        print(reads.syncs())
    """

    def __init__(self) -> None:
        self._counts: defaultdict[CodePlace, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        # A tensor that is freed while it is held may read another one.
        self._lock = threading.RLock()
        self._inside = threading.local()
        self._is_on = False
        self._fit_thread = 0
        self._entry: FrameType | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> HostSyncs:
        self._fit_thread = threading.get_ident()
        self._entry = sys._getframe(1)
        with contextlib.ExitStack() as stack:
            # Names that a version of the backend does not have are left out.
            reads = _READS.get(keras.backend.backend(), _no_reads)()
            if reads is not None:
                self._wrap(reads, stack)
            if keras.backend.backend() == "torch" and torch.cuda.is_available():
                stack.enter_context(_cuda_warnings(self._record_warning))
            self._stack = stack.pop_all()
        self._is_on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_on = False
        self._entry = None
        self._stack.close()

    def syncs(self) -> list[HostSync]:
        """The lines that read, the most frequent first."""
        with self._lock:
            counts = {place: dict(ways) for place, ways in self._counts.items()}
        lines: defaultdict[tuple[str, int, str, bool], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for place, ways in counts.items():
            for how, count in ways.items():
                lines[place.path, place.line, place.part, place.is_of_user][how] += count
        found = [
            HostSync(
                path,
                line,
                linecache.getline(path, line).strip(),
                sum(ways.values()),
                ", ".join(sorted(ways)),
                part,
                is_of_user,
            )
            for (path, line, part, is_of_user), ways in lines.items()
        ]
        return sorted(found, key=lambda sync: (-sync.count, sync.path, sync.line))

    def _wrap(self, reads: _Reads, stack: contextlib.ExitStack) -> None:
        for name, how in reads.methods.items():
            inner = getattr(reads.cls, name, None)
            if isinstance(inner, property) and inner.fget is not None:
                stack.enter_context(_put(reads.cls, name, property(self._counting(inner.fget, how, reads.waits))))
            elif callable(inner):
                stack.enter_context(_put(reads.cls, name, self._counting(inner, how, reads.waits)))
        for module, name, how in reads.functions:
            inner = getattr(module, name)
            counting = self._counting(inner, how, lambda value: isinstance(value, reads.cls) and reads.waits(value))
            stack.enter_context(_put(module, name, counting))

    def _counting(self, inner: Callable[..., Any], how: str, waits: Callable[[Any], bool]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def read(*args: Any, **kwargs: Any) -> Any:
            # One read calls others: `__array__` calls `numpy`.
            if (
                not self._is_on
                or not args
                or getattr(self._inside, "is_reading", False)
                or not _is_true(waits, args[0])
            ):
                return inner(*args, **kwargs)
            self._inside.is_reading = True
            try:
                value = inner(*args, **kwargs)
            finally:
                self._inside.is_reading = False
            self._record(how)
            return value

        return read

    def _record_warning(self) -> None:
        if self._is_on and not getattr(self._inside, "is_reading", False):
            self._record("CUDA synchronization")

    def _record(self, how: str) -> None:
        frame, entry = sys._getframe(1), self._entry
        is_of_fit = threading.get_ident() == self._fit_thread
        place = place_of(frame, entry) if is_of_fit else place_beside(frame)
        if place is not None:
            with self._lock:
                self._counts[place][how] += 1


@contextlib.contextmanager
def _put(owner: Any, name: str, new: Any) -> Iterator[None]:
    """Meanwhile, have another attribute; afterwards exactly the one before, or none if it was inherited."""
    is_own, before = name in vars(owner), vars(owner).get(name)
    try:
        setattr(owner, name, new)
    except (AttributeError, TypeError):
        # A class of C that cannot be changed.
        yield
        return
    try:
        yield
    finally:
        # What others have put over ours stays, and ours, which theirs calls, counts no more.
        if vars(owner).get(name) is new:
            if is_own:
                setattr(owner, name, before)
            else:
                delattr(owner, name)


@contextlib.contextmanager
def _cuda_warnings(record: Callable[[], None]) -> Iterator[None]:
    """Have torch warn when the host waits for the device, and call `record` instead of showing it."""
    warnings.filterwarnings("always", message=f"{_CUDA_WARNING}|{_MODE_WARNING}")
    ours = warnings.filters[0]
    show = warnings.showwarning

    def showwarning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        text = str(message)
        if text.startswith(_CUDA_WARNING):
            record()
        elif not text.startswith(_MODE_WARNING):
            show(message, *args, **kwargs)

    warnings.showwarning = showwarning
    mode = torch.cuda.get_sync_debug_mode()
    try:
        torch.cuda.set_sync_debug_mode("warn")
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
        if warnings.showwarning is showwarning:
            warnings.showwarning = show
        warnings.filters[:] = [one for one in warnings.filters if one is not ours]  # type: ignore[index]


def _is_true(waits: Callable[[Any], bool], value: Any) -> bool:
    # What cannot be asked where it lies is no tensor of the device.
    try:
        return waits(value)
    except Exception:
        return False


def _torch_reads() -> _Reads | None:
    accelerator = getattr(torch, "accelerator", torch.cuda)
    if not accelerator.is_available():
        # `.cpu()` does nothing there.
        return _Reads(torch.Tensor, _METHODS, (), lambda tensor: True)
    return _Reads(torch.Tensor, {**_METHODS, "cpu": ".cpu()"}, (), lambda tensor: tensor.device.type != "cpu")


def _jax_reads() -> _Reads | None:
    # Nearly all go through `_value`. `jax.transfer_guard("log")` would see the same, but writes to stderr.
    is_cpu = jax.default_backend() == "cpu"

    def waits(array: Any) -> bool:
        # It keeps what it has copied from another device.
        is_new = getattr(array, "_npy_value", None) is None
        return is_new and (is_cpu or any(device.platform != "cpu" for device in array.devices()))

    return _Reads(type(jax.numpy.zeros(())), {**_METHODS, "_value": "value"}, _NUMPY_FUNCTIONS, waits)


def _tensorflow_reads() -> _Reads | None:
    is_cpu = not tf.config.list_physical_devices("GPU")

    def waits(tensor: Any) -> bool:
        return is_cpu or "GPU" in tensor.backing_device

    return _Reads(type(tf.constant(0)), {**_METHODS, "_numpy": "value"}, _NUMPY_FUNCTIONS, waits)


def _no_reads() -> _Reads | None:
    return None


# Numpy reads arrays on a CPU by the buffer protocol, past every method.
_NUMPY_FUNCTIONS = ((np, "asarray", "np.asarray()"), (np, "array", "np.array()"))
_READS: dict[str, Callable[[], _Reads | None]] = {
    "jax": _jax_reads,
    "tensorflow": _tensorflow_reads,
    "torch": _torch_reads,
}
