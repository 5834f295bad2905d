"""Which Keras backend and which device a bench runs on."""

from __future__ import annotations

import importlib.util
import os
import platform
from dataclasses import dataclass

from flatout.base.errors import InvalidOption, MissingExtra
from flatout.base.keras_home import configured_backend
from flatout.base.when_used import jax, keras, tf, torch

BACKENDS = ("jax", "tensorflow", "torch")


@dataclass(frozen=True)
class Device:
    """What the steps run on."""

    name: str
    is_gpu: bool


def choose() -> str:
    """Settle on a backend before Keras is imported: KERAS_BACKEND, keras.json, else the first one installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    chosen = os.environ.get("KERAS_BACKEND")
    if not chosen:
        # Keras itself writes "tensorflow" into keras.json when it is first imported, installed or not.
        candidates = (configured_backend(), *BACKENDS)
        chosen = next((name for name in candidates if name in BACKENDS and _is_installed(name)), "jax")
        os.environ["KERAS_BACKEND"] = chosen
    if chosen not in BACKENDS:
        raise InvalidOption(
            f"Invalid value for KERAS_BACKEND. Received: {chosen!r}. Expected one of {', '.join(BACKENDS)}."
        )
    if not _is_installed(chosen):
        raise MissingExtra(f"The backend {chosen} is not installed. Install it: pip install 'flatout[{chosen}]'")
    return keras.backend.backend()


def device() -> Device:
    """The device that Keras uses by default."""
    match keras.backend.backend():
        case "jax":
            first = jax.devices()[0]
            name = first.device_kind if first.platform == "gpu" else None
        case "tensorflow":
            gpus = tf.config.list_physical_devices("GPU")
            name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU") if gpus else None
        case _:
            name = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Device(name or f"{cores}-core {platform.machine()} CPU", is_gpu=name is not None)


def _is_installed(backend: str) -> bool:
    return importlib.util.find_spec(backend) is not None
