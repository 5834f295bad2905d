"""One model on several devices: each takes its part of every batch, and XLA sums between them what is summed over rows.

The devices are some of this process, or all of a group of processes. The step is Keras' own. It is compiled for a
batch of which each device has a part, and for state of which each has a copy: losses, metrics and batch normalization
are those of the whole batch, however they reduce it. A batch that cannot be divided is computed whole by each device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flatout.base.group import joined


class OneDevice:
    """Where a step runs: on the device that jax takes by itself."""

    def put(self, numbers: np.ndarray) -> Any:
        """Row numbers on it."""
        return jax.device_put(numbers)

    def copied(self, values: Any) -> Any:
        """Arrays that are on it, or a copy of them on each device."""
        return values

    def divided(self, batch: Any) -> Any:
        """Inside a program: rows of which each device takes its part."""
        return batch

    def known_to_all(self, values: Any) -> Any:
        """Inside a program: results that all devices have."""
        return values

    def on_one(self, values: Any) -> Any:
        """The first device's copies of arrays, for programs of Keras and the user."""
        return values


class SeveralDevices(OneDevice):
    """Some devices of this process, or all of a group's; `is_of_keras` if Keras itself keeps variables there."""

    def __init__(self, mesh: Mesh, is_of_keras: bool = False):
        self.devices = list(mesh.devices.flat)
        self.devices_here = [device for device in self.devices if device.process_index == jax.process_index()]
        self._is_of_keras = is_of_keras
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._parts = NamedSharding(mesh, PartitionSpec(*mesh.axis_names))

    def put(self, numbers: np.ndarray) -> Any:
        return self.copied(numbers)

    def copied(self, values: Any) -> Any:
        if self._whole.is_fully_addressable:
            return jax.device_put(values, self._whole)
        return jax.tree.map(self._copied_by_each, values)

    def _copied_by_each(self, value: Any) -> Any:
        """An array that each process of a group has, as one; `device_put` would have them compare it first."""
        if isinstance(value, jax.Array) and not value.is_fully_addressable:
            return value
        copies = [jax.device_put(value, device) for device in self.devices_here]
        return jax.make_array_from_single_device_arrays(np.shape(value), self._whole, copies)

    def divided(self, batch: Any) -> Any:
        def parts(leaf: Any) -> Any:
            can_be_divided = leaf.ndim and leaf.shape[0] % len(self.devices) == 0
            return jax.lax.with_sharding_constraint(leaf, self._parts if can_be_divided else self._whole)

        return jax.tree.map(parts, batch)

    def known_to_all(self, values: Any) -> Any:
        return jax.lax.with_sharding_constraint(values, self._whole)

    def on_one(self, values: Any) -> Any:
        def first(value: Any) -> Any:
            # What a step that failed has used up stays what it is.
            return value if value.is_deleted() else value.addressable_data(0)

        return values if self._is_of_keras else jax.tree.map(first, values)


def devices_for(workers: int | str) -> OneDevice:
    """Those of `keras.distribution`; else the first so many, or all (`"auto"`)."""
    distribution = keras.distribution.distribution()
    if distribution is not None:
        return SeveralDevices(distribution.device_mesh.backend_mesh, is_of_keras=True)
    group = joined()
    if group is not None:
        return OneDevice() if group.is_alone else _of_group()
    found = device_count() if workers == "auto" else int(workers)
    return _of_first(found) if found > 1 else OneDevice()


@functools.cache
def _of_group() -> SeveralDevices:
    return SeveralDevices(Mesh(np.array(jax.devices()), ("batch",)))


@functools.cache
def _of_first(workers: int) -> SeveralDevices:
    return SeveralDevices(Mesh(np.array(jax.local_devices()[:workers]), ("batch",)))


def own_rows_on_devices() -> Callable[[int], slice] | None:
    """Which rows of x the devices of this process take of a batch of so many; None for all of them."""
    group = joined()
    if group is None or group.is_alone or group.place.size == 1:
        return None
    place = group.place

    def rows(total: int) -> slice:
        # A batch that cannot be divided is computed whole by each device.
        return slice(*place.rows_of(total)) if total % device_count() == 0 else slice(0, total)

    return rows


def can_follow(distribution: Any) -> bool:
    """Whether it divides batches, and nothing else, among devices of this process."""
    is_plain = type(distribution) is keras.distribution.DataParallel and len(distribution.device_mesh.shape) == 1
    return is_plain and jax.process_count() == 1


def device_count() -> int:
    """Devices of this process, or of its group."""
    return len(jax.devices())
