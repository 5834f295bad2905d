"""Which launcher: one for each library, and one on the CPU for tests."""

from __future__ import annotations

import importlib
import os

from flatout.base.errors import InvalidOption, MissingExtra, Reason, reason

from .launcher import Launcher

# Of each its class, and what to do where it is not to be had.
_LAUNCHERS = {
    "cuda.core": ("launch_cuda_core.CudaCoreLauncher", "Install it with: pip install 'flatout[gpu]'."),
    "cupy": ("launch_cupy.CupyLauncher", "Install it with: pip install cupy-cuda13x."),
    "pycuda": (
        "launch_pycuda.PycudaLauncher",
        "Install it with: pip install pycuda (it needs nvcc and a C++ compiler).",
    ),
    "cpu": ("launch_cpu.CpuLauncher", ""),
}


def make_launcher(name: str) -> Launcher:
    """The launcher of a name: `"cuda.core"`, `"cupy"`, `"pycuda"` or `"cpu"`.

    Raises:
        InvalidOption: There is no launcher of that name.
        MissingExtra: Its library, or a device, is not there.
    """
    if name not in _LAUNCHERS:
        raise InvalidOption(
            f"Invalid value for argument `launcher`. Received: launcher={name!r}. "
            f"Expected one of {', '.join(map(repr, _LAUNCHERS))}."
        )
    where, remedy = _LAUNCHERS[name]
    file, _, kind = where.partition(".")
    try:
        module = importlib.import_module(f".{file}", __package__)
    except ImportError as error:
        raise MissingExtra(f"The launcher {name!r} cannot be imported ({error}). {remedy}") from error
    launcher: Launcher = getattr(module, kind)()
    return launcher


def default_launcher() -> str:
    """`"cuda.core"`, unless FLATOUT_NATIVE=cpu asks for the emulation on the CPU that the tests use."""
    return "cpu" if os.environ.get("FLATOUT_NATIVE") == "cpu" else "cuda.core"


def why_not_here() -> Reason | None:
    """Why native programs cannot run on this machine; None if they can."""
    try:
        make_launcher(default_launcher())
    except MissingExtra as error:
        return reason("native_device", str(error).removesuffix("."))
    return None
