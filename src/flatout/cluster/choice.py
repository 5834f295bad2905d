"""Whether a fit is one for several processes, and for how many."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from flatout.base.errors import InvalidOption
from flatout.base.group import joined
from flatout.base.options import Options
from flatout.base.when_used import keras
from flatout.engines.select import engine_for
from flatout.seam.stock_methods import Conduct

# More would wait for each other.
_PROCESSES_OF_A_CORE = 2


def group_wanted(options: Options) -> Options | None:
    """The options of a fit by processes, with their number and what starts them; None for a fit in this one."""
    is_plain = options.workers == 1 and options.launcher == "auto"
    if is_plain or not options.enabled or options.engine == "stock" or joined() is not None:
        return None
    if keras.distribution.distribution() is not None:
        # The user's own way to divide batches.
        return None
    launcher = options.launcher
    if launcher == "auto":
        launcher = "ray" if os.environ.get("RAY_ADDRESS") else "local"
    if launcher == "ray":
        from .ray_launcher import available_workers

        workers = available_workers() if options.workers == "auto" else options.workers
        return replace(options, workers=workers, launcher=launcher)
    engine = engine_for(keras.config.backend())
    devices = max(engine.devices, engine.processes)
    workers = devices if options.workers == "auto" else int(options.workers)
    if options.launcher == "auto" and workers <= engine.devices:
        return None
    cores = os.cpu_count() or 1
    most = max(_PROCESSES_OF_A_CORE * cores, devices) if engine.shares_devices else devices
    if workers > most:
        has = f"{cores} cores" if engine.shares_devices else f"{devices} GPU(s), of which {engine.name} needs one each"
        raise InvalidOption(
            f"Invalid value for option `workers`. Received: workers={workers}. Expected no more than {most} processes "
            f"on this machine, with {has}; more are for several machines (launcher='ray')."
        )
    return replace(options, workers=workers, launcher=launcher)


def fit_in_group(model: Any, call: dict[str, Any], wanted: Options, conduct: Conduct) -> Any:
    from .group_fit import fit_in_group

    return fit_in_group(model, call, wanted, conduct)
