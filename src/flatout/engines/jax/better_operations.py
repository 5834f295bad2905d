"""Operations for which GPUs have no good kernels, and what is computed in their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .convolutions.convolution_products import convolution
from .convolutions.few_features import by_kernel, has_kernel
from .convolutions.pooled_gradient import can_be_masked, masked


def _always(*operands: Any, **parameters: Any) -> bool:
    return True


@dataclass(frozen=True)
class Instead:
    """What is computed in the place of a primitive, and whether it is better, by the operands' shapes and dtypes.

    Both functions take the primitive's operands and parameters.

    Attributes:
        is_kernel: Whether it is one of ours, which some GPU might not compile.
    """

    function: Callable[..., Any]
    is_better: Callable[..., bool] = _always
    is_kernel: bool = False


BETTER_WITHOUT_KERNELS = {"select_and_scatter_add": Instead(masked, can_be_masked)}
BETTER = {**BETTER_WITHOUT_KERNELS, "conv_general_dilated": Instead(by_kernel, has_kernel, is_kernel=True)}
# Of models that are mapped, whose convolutions would be grouped.
BETTER_MAPPED = {**BETTER_WITHOUT_KERNELS, "conv_general_dilated": Instead(convolution)}
