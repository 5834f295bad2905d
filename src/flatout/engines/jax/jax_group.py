"""Processes that train one model on jax: one program over the devices of all of them (`data_parallel.py`)."""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import multihost_utils

from flatout.base.group import Group, Place


class JaxGroup(Group):
    """Made before any device is used."""

    def __init__(self, place: Place):
        super().__init__(place)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        bind = place.addresses[0] if self.is_first else None
        jax.distributed.initialize(place.addresses[0], place.size, place.rank, coordinator_bind_address=bind)

    def sum_numbers(self, numbers: np.ndarray) -> np.ndarray:
        gathered = np.asarray(multihost_utils.process_allgather(numbers))
        return gathered.reshape(self.place.size, *numbers.shape).sum(axis=0, dtype=np.int32)
