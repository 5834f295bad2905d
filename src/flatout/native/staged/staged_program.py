"""A model lowered to the staged form, as a program."""

from __future__ import annotations

from typing import Any

from flatout.base.errors import Refusal, reason
from flatout.native.model.read_model import read
from flatout.native.program.builder import READABLE
from flatout.native.program.kernel_program import KernelProgram, StepName
from flatout.native.program.kernel_source import shared_code

from .staged_form import StagedForm

# Offsets into a batch are 32-bit.
_MOST_VALUES = 2**31 - 1


def staged_program(
    model: Any,
    task: StepName,
    batch_size: int,
    x_type: str,
    y_type: str | None,
    weighted: bool,
) -> KernelProgram:
    """A model as one kernel a stage, for data of these types.

    Raises:
        Refusal: There are no kernels for it.
    """
    network, binding = read(model, task)
    if network.widest * batch_size > _MOST_VALUES:
        raise Refusal(reason("native_data", f"a batch of {batch_size} rows has more than 2**31 values"))
    if y_type is None:
        y_type = "int32" if network.loss is not None and network.loss.kind == "sparse" else "float32"
    for name in (x_type, y_type):
        if name not in READABLE:
            raise Refusal(reason("native_data", f"they are {name}"))
    form = StagedForm(network, batch_size, x_type, y_type, weighted)
    prelude = shared_code(form.declarations, list(form.kernels.values()))
    return KernelProgram(network, "staged", batch_size, form.layout, form.kernels, form.steps, prelude, model, binding)
