"""The yardstick on torch: the seed model's step as people write it by hand, captured in a CUDA graph.

Plain torch without Keras: two linear layers, cross-entropy, autograd and torch's own fused Adam, rows gathered by the
epoch's order inside the graph, so that a step is one launch and nothing else.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch.nn import functional


def us_per_step(x: Any, y: Any, batch_size: int, epochs: int) -> float:
    """The median time of a step, over the epochs after the first."""
    steps = len(x) // batch_size
    rows = torch.as_tensor(x, device="cuda").reshape(len(x), -1)
    labels = torch.as_tensor(y, device="cuda").long()
    model = torch.nn.Sequential(torch.nn.Linear(rows.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True, fused=True)
    order = torch.arange(len(x), device="cuda")
    places = torch.arange(batch_size, device="cuda")
    clock = torch.zeros((), dtype=torch.long, device="cuda")
    total, right = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")

    def step() -> None:
        taken = order[clock * batch_size + places]
        target = labels[taken]
        logits = model(rows[taken])
        loss = functional.cross_entropy(logits, target)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        total.add_(loss.detach() * batch_size)
        right.add_((logits.detach().argmax(1) == target).sum())
        clock.add_(1)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    seconds = []
    for _ in range(epochs):
        torch.cuda.synchronize()
        began = time.perf_counter()
        order.copy_(torch.randperm(len(x)))
        for counter in (clock, total, right):
            counter.zero_()
        for _ in range(steps):
            graph.replay()
        float(total)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:]) / steps * 1e6
