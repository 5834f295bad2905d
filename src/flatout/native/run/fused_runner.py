"""The fused form at work beside the staged form, whose buffers it shares."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base import disk_cache
from flatout.base.errors import Refusal, reason
from flatout.engines.contract import company
from flatout.native.fused.fused_plan import FusedPlan, Precision, plans
from flatout.native.fused.fused_program import LOG, RANGE, SPLIT, STEP_SUMS, TRAIN, fused_program
from flatout.native.launch.buffers import DeviceArray
from flatout.native.launch.launcher import Launcher, launches
from flatout.native.model.network import Affine
from flatout.native.program.kernel_program import KernelProgram

# The largest magnitude of x comes to lie in [2^10, 2^11): far below the largest half, with bits left for small ones.
_EXPONENT = 10
# A feature whose largest value is below this part of all values' has fewer than 23 bits left.
_LEAST_FEATURE = 2.0**-12
# What a 1 in the halves of hidden units stands for: see HIDDEN_SCALE in fused_stack_layout.cuh.
HIDDEN_UNIT = 1 / 16
# Bounds of what Adam's epsilon becomes in the kernel, whose four-fold product must neither vanish nor overflow.
_EPSILONS = (1e-9, 1e8)
# Half as many blocks for a model take this many times as long for a step.
_TIMES_FOR_HALF = 1.7
# The fastest shapes on the GPUs where that was measured.
_TUNED_FILE = "tuned.json"


def candidates(launcher: Launcher, staged: KernelProgram, precision: Precision) -> list[FusedPlan]:
    """Shapes of the kernel that serve a program, the most promising first.

    Raises:
        Refusal: There is none.
    """
    obstacle = launcher.why_no_clusters()
    if obstacle is not None:
        raise _refusal(obstacle)
    return plans(
        staged.network,
        staged.batch_size,
        staged.layout["x"].dtype,
        "weight" in staged.layout,
        precision,
        _is_scaled_by_one(staged),
    )


class FusedRunner:
    """Runs whole chunks of full batches in one kernel, whose shape is `plan`."""

    def __init__(
        self,
        launcher: Launcher,
        staged: KernelProgram,
        shared: Mapping[str, DeviceArray],
        precision: Precision,
        plan: FusedPlan | None = None,
    ):
        """Compile the kernel for a program: of the shape that is the fastest here, or of that of `plan`.

        `shared` are the buffers of the staged form; the data among them may change.

        Raises:
            Refusal: There is none for it.
        """
        self._launcher = launcher
        self._shared = shared
        found = candidates(launcher, staged, precision)
        for one in [plan] if plan else in_order_of_speed(launcher, found, company().models):
            program = fused_program(staged, one)
            try:
                self.plan, self.program, self._run = one, program, launcher.load(program)
                break
            except Refusal as refusal:
                problem = refusal.reason.message.rstrip(".")
        else:
            raise _refusal(problem)
        self._buffers: dict[str, DeviceArray] = {
            name: self._launcher.empty(buffer.shape, np.dtype(buffer.dtype))
            for name, buffer in self.program.layout.items()
            if 0 not in buffer.shape and name != "fused/numbers"
        }
        self._split_of: _Split | None = None
        self._filled: int | None = None
        # Of models that train beside each other: rows that one of them has split are split for all.
        self._splits: dict[Any, _Split] = company().kept
        self._is_alone = company().models == 1

    def forget_x(self, filled: int | None = None) -> None:
        """Split x anew before the next steps; it has other values, in all rows or in the first ones alone."""
        self._filled = filled
        if self._split_of is not None:
            self._split_of, self._splits = None, {}

    def launch(self, first_row: int, count: int) -> None:
        """Launch `count` steps, from the row `first_row` of the order on, with the state in the shared buffers.

        Raises:
            Refusal: x is out of the range in which halves are exact enough. Nothing was launched.
        """
        self._split()
        self._buffers["fused/span"].assign(np.array([first_row, count], np.int32))
        self._launch([TRAIN], self.plan.batch)

    def sum_up(self) -> DeviceArray:
        """Launch what counts the totals after the steps; returns where 1 will be if the steps could not be taken.

        Then nothing was changed, nor will it be by steps that are launched later.
        """
        self._launch([STEP_SUMS, LOG], self.plan.batch)
        return self._buffers["fused/failed"]

    def launch_steps(self) -> None:
        """Launch the kernel of the steps once more, as `launch` did last, and nothing else."""
        self._launch([TRAIN], self.plan.batch)

    def _launch(self, names: list[str], rows: int) -> None:
        self._run(launches(self.program, names, {**self._shared, **self._buffers}, rows), 1)

    def _split(self) -> None:
        """Bring x into halves, unless that was done, with the layer before the first Dense one as it is now."""
        x = self._shared["x"]
        constants = _constants(self.program)
        known = self._split_of
        if known is not None and known.x.pointer == x.pointer and all(map(np.array_equal, known.constants, constants)):
            return
        key = (x.pointer, self.plan.layers[0].row_halves, self.plan.is_raw, *(one.tobytes() for one in constants))
        known = self._splits.get(key)
        self._split_of = known or self._splits.setdefault(key, self._made_split(x, constants))
        self._check_epsilon(self._split_of.unit)
        self._buffers |= {"fused/planes": self._split_of.planes, "fused/numbers": self._split_of.numbers}

    def _made_split(self, x: DeviceArray, constants: list[np.ndarray]) -> _Split:
        rows = x.shape[0] if self._filled is None else self._filled
        unit, multiplier = self._units(rows, constants)
        self._check_epsilon(unit)
        numbers = self._launcher.empty((2,), np.dtype("float32"))
        numbers.assign(np.array([unit, multiplier], np.float32))
        shape = (x.shape[0], self.plan.layers[0].row_halves)
        planes = self._buffers.pop("fused/planes", None)
        if self._is_alone:
            # Nobody else has them, and they are about to be others.
            self._splits.clear()
        if planes is None or planes.shape != shape or not self._is_alone:
            planes = None
            try:
                planes = self._launcher.empty(shape, np.dtype("uint16"))
            except Exception as error:
                raise _refusal(f"there is no memory for x as halves ({2 * math.prod(shape):,} B)") from error
        self._buffers |= {"fused/planes": planes, "fused/numbers": numbers}
        self._launch([SPLIT], rows)
        self._launcher.wait()
        return _Split(x, constants, unit, planes, numbers)

    def _units(self, rows: int, constants: list[np.ndarray]) -> tuple[float, float]:
        """What a 1 in the halves stands for, and what x is multiplied by before it is rounded to them."""
        if self.plan.is_raw:
            return (float(constants[0][0]) if constants else 1.0), 1.0
        self._launch([RANGE], rows)
        largest = self._buffers["fused/largest"].numpy().max(axis=0).view(np.float32)
        most = float(largest.max())
        if not math.isfinite(most):
            raise _refusal("x has values that are not finite")
        if most == 0:
            return 1.0, 1.0
        least = float(largest[largest > 0].min())
        if self.plan.precision == "exact" and least < most * _LEAST_FEATURE:
            raise _refusal(
                f"features of x differ too much in size (from {least:.3g} to {most:.3g}), "
                "which a Normalization layer would mend"
            )
        exponent = math.frexp(most)[1]
        return 2.0 ** (exponent - 1 - _EXPONENT), 2.0 ** (_EXPONENT + 1 - exponent)

    def _check_epsilon(self, unit: float) -> None:
        optimizer = self.program.network.optimizer
        assert optimizer is not None
        if optimizer.kind != "adam":
            return
        root = math.sqrt(1 - optimizer["beta_2"])
        for scale in (unit, HIDDEN_UNIT, 1.0):
            carried = optimizer["epsilon"] * 128 * self.plan.batch / scale / root / 2048
            if not _EPSILONS[0] <= carried <= _EPSILONS[1]:
                raise _refusal(f"Adam's epsilon of {optimizer['epsilon']:g} is out of proportion to x")


@dataclass(frozen=True, eq=False)
class _Split:
    """x as halves, what the layer before the first Dense one was then, and what a 1 in the halves stands for."""

    x: DeviceArray
    constants: list[np.ndarray]
    unit: float
    planes: DeviceArray
    numbers: DeviceArray


def _refusal(problem: str) -> Refusal:
    return Refusal(reason("native_form", f"one kernel a stage, because {problem}"))


# Why stages take over from a kernel whose steps could not be taken.
OUT_OF_RANGE = _refusal("weights, activations or gradients have left the range of half precision").reason


def _constants(program: KernelProgram) -> list[np.ndarray]:
    """Scale and offset of the layer before the first Dense one."""
    layers = program.network.layers
    affine = layers[0] if layers and isinstance(layers[0], Affine) else None
    return [program.binding.constants[weight.name]() for weight in affine.weights] if affine is not None else []


def _is_scaled_by_one(program: KernelProgram) -> bool:
    constants = _constants(program)
    if not constants:
        return True
    scale, offset = constants
    return bool((scale == scale[0]).all() and scale[0] > 0 and not offset.any())


def in_order_of_speed(launcher: Launcher, found: list[FusedPlan], models: int = 1) -> list[FusedPlan]:
    """Plans with the one first by which so many models at once should be done the soonest.

    For one model that is the one that was the fastest on this GPU, if that was measured.
    """
    known = _known_shapes()

    def is_not_known(plan: FusedPlan) -> bool:
        return known.get(_shape_key(launcher.device_name, plan)) != [plan.cluster, plan.warps]

    def duration(plan: FusedPlan) -> float:
        waves = math.ceil(models * plan.cluster / max(plan.cluster, launcher.processors))
        return waves * _TIMES_FOR_HALF ** -math.log2(plan.cluster)

    return sorted(found, key=is_not_known if models == 1 else duration)


def _shape_key(device: str, plan: FusedPlan) -> str:
    """All of a plan that is not tuned."""
    facts = {
        name: value for name, value in dataclasses.asdict(plan).items() if name not in ("cluster", "warps", "input")
    }
    return f"{device}: {json.dumps(facts)}"


def _known_shapes() -> dict[str, Any]:
    try:
        known = json.loads((disk_cache.folder_for_now("kernels") / _TUNED_FILE).read_text())
    except (OSError, ValueError):
        # Not there, or not ours: nothing is known.
        return {}
    return known if isinstance(known, dict) else {}


def remember_shape(device: str, plan: FusedPlan) -> None:
    """Note a plan as the fastest on a GPU."""
    known = {**_known_shapes(), _shape_key(device, plan): [plan.cluster, plan.warps]}
    disk_cache.put(disk_cache.folder_for_now("kernels") / _TUNED_FILE, json.dumps(known, indent=1).encode())
