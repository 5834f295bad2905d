"""Training by hand in plain PyTorch: the whole step on the device, with its batch and the sums of its metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_models_by_hand import ByHand, copy_weights


class Accuracy:
    """How often the likeliest class was the right one, summed on the device."""

    name = "accuracy"

    def __init__(self, on: str) -> None:
        self.sums = torch.zeros((), device=on)

    def add(self, logits: Tensor, labels: Tensor) -> None:
        chosen = logits[:, 0] > 0 if logits.shape[1] == 1 else logits.argmax(1)
        self.sums.add_((chosen == labels).sum())

    def result(self, rows: int) -> float:
        return self.sums.item() / rows


class AUC:
    """Keras' AUC: both classes counted in 199 steps of probability, and the area by trapezoids at the epoch's end."""

    name = "auc"
    steps = 199

    def __init__(self, on: str) -> None:
        self.sums = torch.zeros(2 * self.steps, device=on)

    def add(self, logits: Tensor, labels: Tensor) -> None:
        step = ((logits[:, 0].sigmoid() * self.steps).ceil() - 1).clamp(min=0)
        self.sums.index_add_(0, (labels * self.steps + step).long(), torch.ones_like(labels))

    def result(self, rows: int) -> float:
        above = self.sums.view(2, self.steps).flip(1).cumsum(1).cpu()
        false, true = functional.pad(above / above[:, -1:], (1, 0))
        return torch.trapezoid(true, false).item()


@dataclass
class Training:
    """A model by hand with its optimizer, its data on the device and the sums of an epoch; `step` is a whole one."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[Tensor, Tensor], Tensor]
    metric: Accuracy | AUC
    inputs: list[Tensor]
    labels: Tensor
    batch_size: int
    order: Tensor = field(init=False)
    places: Tensor = field(init=False)
    clock: Tensor = field(init=False)
    total: Tensor = field(init=False)
    forward: Callable[[], Tensor] = field(init=False)

    def __post_init__(self) -> None:
        on = self.labels.device
        self.order = torch.arange(len(self.labels), device=on)
        self.places = torch.arange(self.batch_size, device=on)
        self.clock = torch.zeros((), dtype=torch.long, device=on)
        self.total = torch.zeros((), device=on)
        self.forward = self.forward_with_sums

    def forward_with_sums(self) -> Tensor:
        """The loss of the batch at the clock, which goes on by one."""
        rows = self.order[self.clock * self.batch_size + self.places]
        labels = self.labels[rows]
        logits = self.model(*[array[rows] for array in self.inputs])
        loss = self.loss(logits, labels)
        self.total.add_(loss.detach())
        self.metric.add(logits.detach(), labels)
        self.clock.add_(1)
        return loss

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.forward().backward()
        self.optimizer.step()

    def begin_epoch(self) -> None:
        self.order.copy_(torch.randperm(len(self.order), device=self.order.device))
        for sums in (self.clock, self.total, self.metric.sums):
            sums.zero_()

    def results(self) -> dict[str, float]:
        """The epoch's loss and metric; waits for the device."""
        steps = int(self.clock.item())
        return {"loss": self.total.item() / steps, self.metric.name: self.metric.result(steps * self.batch_size)}

    def train_epoch(self, step: Callable[[], Any]) -> dict[str, float]:
        self.begin_epoch()
        for _ in range(len(self.labels) // self.batch_size):
            step()
        return self.results()


def training_of(by_hand: ByHand, keras_model: Any, x: Any, y: Any, batch_size: int) -> Training:
    """A training by hand that begins with Keras' weights."""
    on = "cuda" if torch.cuda.is_available() else "cpu"
    model = by_hand.build().to(on)
    copy_weights(keras_model, model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer: torch.optim.Optimizer
    if by_hand.optimizer == "sgd":
        optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9, fused=True)
    else:
        optimizer = torch.optim.Adam(trained, lr=1e-3, eps=1e-7, fused=True, capturable=on == "cuda")
    return Training(
        model,
        optimizer,
        _binary_loss if by_hand.is_binary else functional.cross_entropy,
        AUC(on) if by_hand.has_auc else Accuracy(on),
        _inputs(x, on),
        torch.as_tensor(y, device=on).to(torch.float32 if by_hand.is_binary else torch.long),
        batch_size,
    )


def _binary_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits[:, 0], labels)


def _inputs(x: Any, on: str) -> list[Tensor]:
    """The arrays on the device, images with their channels first."""
    arrays = [torch.as_tensor(array, device=on) for array in (x.values() if isinstance(x, dict) else [x])]
    return [array.permute(0, 3, 1, 2).contiguous() if array.ndim == 4 else array for array in arrays]


def captured(training: Training) -> Callable[[], None]:
    """The whole step as a CUDA graph."""
    # One stream for both: the backward pass works on the one on which a parameter was first used.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            training.begin_epoch()
            training.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        training.step()
    torch.cuda.synchronize()
    return graph.replay
