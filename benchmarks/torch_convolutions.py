"""What cuDNN needs for each convolution of a model: forward, both gradients, in both layouts, and what memory allows.

    python benchmarks/torch_convolutions.py
    python benchmarks/torch_convolutions.py convnet --batch-size 128 --exact

Times are of CUDA graphs of many calls, after cuDNN has tried its kernels. "turned" is the gradient of the input as a
forward convolution with the kernel turned round, which is the same sum where the stride is 1. The floor is the time in
which the tensors could be read and written once. On a CPU it runs, to be tried out.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch_models_by_hand import MODELS

_CALLS, _TRIALS = 50, 5
_SHAPES = {"convnet": (1, 28, 28), "resnet20": (3, 32, 32)}
_LAYOUTS = {"NHWC": torch.channels_last, "NCHW": torch.contiguous_format}
# Of an H200.
_BYTES_PER_SECOND = 4.8e12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="resnet20", choices=sorted(_SHAPES))
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--exact", action="store_true", help="without TF32, which cuDNN uses by default")
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = not given.exact
    torch.backends.cudnn.benchmark = True
    on = "cuda" if torch.cuda.is_available() else "cpu"
    table = Table("count", "input", "kernel", "stride", title=f"us a call on {_device(on)}, torch {torch.__version__}")
    for layout in _LAYOUTS:
        for way in ("forward", "input", "turned", "kernel"):
            table.add_column(f"{layout}\n{way}", justify="right")
    table.add_column("floor", justify="right")
    sums: Counter[str] = Counter()
    for (shape, size, stride, padding), count in _convolutions(given.model, given.batch_size).items():
        taken = {
            f"{name} {way}": 1e6 * seconds
            for name, layout in _LAYOUTS.items()
            for way, seconds in _times(shape, size, stride, padding, layout, on).items()
        }
        floor = 1e6 * 4 * (math.prod(shape) + _outputs(shape, size, stride, padding)) / _BYTES_PER_SECOND
        cells = [f"{value:.1f}" if math.isfinite(value) else "-" for value in taken.values()]
        table.add_row(
            str(count), "x".join(map(str, shape)), "x".join(map(str, size)), str(stride), *cells, f"{floor:.1f}"
        )
        sums.update({way: count * value for way, value in taken.items()})
    cells = [f"{value:,.0f}" if math.isfinite(value) else "-" for value in sums.values()]
    table.add_section()
    table.add_row("all", "", "", "", *cells, "")
    Console(width=150).print(table)


def _device(on: str) -> str:
    return torch.cuda.get_device_name() if on == "cuda" else "a CPU"


def _convolutions(name: str, batch_size: int) -> Counter[Any]:
    """Shapes of inputs and kernels, strides and paddings, and how often each is there."""
    found: Counter[Any] = Counter()

    def note(layer: nn.Conv2d, inputs: tuple[Tensor]) -> None:
        sizes = tuple(inputs[0].shape), tuple(layer.weight.shape)
        found[*sizes, layer.stride[0], layer.padding[0]] += 1

    model = MODELS[name].build()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_pre_hook(note)
    with torch.no_grad():
        model(torch.zeros(batch_size, *_SHAPES[name]))
    return found


def _outputs(shape: tuple[int, ...], size: tuple[int, ...], stride: int, padding: int) -> int:
    rows, columns = ((shape[axis] + 2 * padding - size[axis]) // stride + 1 for axis in (2, 3))
    return shape[0] * size[0] * rows * columns


def _times(
    shape: tuple[int, ...], size: tuple[int, ...], stride: int, padding: int, layout: torch.memory_format, on: str
) -> dict[str, float]:
    """Seconds of each way in a layout; endless where there is none."""
    x, kernel = (torch.randn(one, device=on).to(memory_format=layout) for one in (shape, size))
    strides, paddings, ones = [stride] * 2, [padding] * 2, [1, 1]
    y = torch.ops.aten.convolution(x, kernel, None, strides, paddings, ones, False, [0, 0], 1)

    def backward(*wanted: bool) -> Callable[[], Any]:
        rest = (None, strides, paddings, ones, False, [0, 0], 1, [*wanted, False])
        return lambda: torch.ops.aten.convolution_backward(y, x, kernel, *rest)

    def turned() -> Tensor:
        other = kernel.flip(2, 3).transpose(0, 1).contiguous(memory_format=layout)
        around = [edge - 1 - padding for edge in size[2:]]
        return torch.ops.aten.convolution(y, other, None, ones, around, ones, False, [0, 0], 1)

    ways = {
        "forward": lambda: torch.ops.aten.convolution(x, kernel, None, strides, paddings, ones, False, [0, 0], 1),
        "input": backward(True, False),
        "turned": turned,
        "kernel": backward(False, True),
    }
    if stride > 1:
        del ways["turned"]
    elif not torch.allclose(turned(), ways["input"]()[0], rtol=1e-2, atol=1e-2 * math.sqrt(math.prod(size[1:]))):
        raise AssertionError("The turned kernel gives another gradient.")
    times = {name: _seconds(way, on) for name, way in ways.items()}
    return {name: times.get(name, math.inf) for name in ("forward", "input", "turned", "kernel")}


def _seconds(call: Callable[[], Any], on: str) -> float:
    if on == "cpu":
        began = time.perf_counter()
        call()
        return time.perf_counter() - began
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            call()
    best = math.inf
    for _ in range(_TRIALS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        best = min(best, began.elapsed_time(ended) / 1000 / _CALLS)
    return best


if __name__ == "__main__":
    main()
