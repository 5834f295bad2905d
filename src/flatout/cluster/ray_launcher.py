"""Worker processes on a Ray cluster, or on one that is started on this machine: placed and started by Ray Train.

Everything else (who finds whom, what a process does, what is to be done when one is lost) is as with processes of this
machine. Ray's module paths move between versions: nobody else names them.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import warnings
from typing import Any

from flatout.base.errors import InvalidOption, MissingExtra

from .local_launcher import GroupLauncher
from .worker import work

_SECONDS_TO_END = 30.0


class RayLauncher(GroupLauncher):
    """Ray Train's neutral trainer; a GPU for each process where the cluster has any."""

    name = "ray"

    def __init__(self) -> None:
        ray = _started()
        self._thread: threading.Thread | None = None
        self._failure = ""
        self._folder = tempfile.TemporaryDirectory(prefix="flatout-ray-")
        self.host = str(ray.util.get_node_ip_address())
        self.shares_files = len(ray.nodes()) == 1

    def start(self, size: int, address: tuple[str, int], key: bytes) -> None:
        import ray.train
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        gpus, cores = _gpus(ray), int(ray.cluster_resources().get("CPU", 0))
        most, of_what = min((cores, "CPU cores"), (gpus or cores, "GPUs"))
        if size > most:
            # Ray would wait for more.
            raise InvalidOption(
                f"Invalid value for option `workers`. Received: workers={size}. Expected no more than {most}, the "
                f"{of_what} of the Ray cluster."
            )
        trainer = DataParallelTrainer(
            _work_for_ray,
            train_loop_config={"address": address, "key": key},
            scaling_config=ray.train.ScalingConfig(num_workers=size, use_gpu=gpus > 0),
            # Restarts are ours, with or without Ray.
            run_config=ray.train.RunConfig(
                storage_path=self._folder.name, failure_config=ray.train.FailureConfig(max_failures=0)
            ),
        )

        def run() -> None:
            try:
                trainer.fit()
            except Exception as error:
                self._failure = f"Ray says: {error}"

        self._thread = threading.Thread(target=run, name="flatout Ray trainer", daemon=True)
        self._thread.start()

    def ended(self, rank: int) -> str:
        return "" if self._thread is None or self._thread.is_alive() else self._failure

    def stop(self, lost: int | None) -> None:
        # Workers end with their line to the supervisor, and Ray notices.
        if self._thread is not None:
            self._thread.join(_SECONDS_TO_END)
        self._folder.cleanup()


def available_workers() -> int:
    """GPUs of the cluster; one process where it has none."""
    return _gpus(_started()) or 1


def _started() -> Any:
    """Ray, connected to the cluster of `RAY_ADDRESS`, or to one of this machine that ends with this process."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("Ray is not installed. Install it with: pip install 'flatout[cluster]'") from error
    if not ray.is_initialized():
        # Of a cluster that is there already, Ray leaves all of it as it is.
        settings: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
        with warnings.catch_warnings():
            # It starts programs, by a fork of which jax warns.
            warnings.simplefilter("ignore", RuntimeWarning)
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
    return ray


def _gpus(ray: Any) -> int:
    return int(ray.cluster_resources().get("GPU", 0))


def _work_for_ray(config: dict[str, Any]) -> None:
    import ray

    # Ray would have libraries tell what they do.
    logging.getLogger().setLevel(logging.WARNING)
    host = str(ray.util.get_node_ip_address())
    work(host, tuple(config["address"]), config["key"], ray.train.get_context().get_world_rank())
