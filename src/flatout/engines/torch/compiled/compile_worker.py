"""A process that compiles parts of a recorded step: run as a script, it imports torch and nothing of ours.

The job comes by the standard input, as a line of JSON (`segment.py` writes it); when that is closed, nobody waits any
more. For each part an artifact of Inductor's goes to a file; a part whose file is there already is left as it is. What
goes wrong is told by the standard output.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def decoded(item: Any, node_of: Callable[[int], Any]) -> Any:
    """An argument of a call as it was before it became JSON; `node_of` knows the values."""
    import torch

    if isinstance(item, list):
        return [decoded(one, node_of) for one in item]
    if not isinstance(item, dict):
        return item
    ((kind, content),) = item.items()
    if kind == "value":
        return node_of(content)
    if kind == "device":
        return torch.device(content)
    return getattr(torch, content)


def module_of(part: dict[str, Any]) -> Any:
    """A part as a `torch.fx.GraphModule`."""
    import torch

    graph = torch.fx.Graph()
    nodes = {number: graph.placeholder(f"v{number}") for number in part["inputs"]}
    for number, value, dtype, device in part["scalars"]:
        options = {"dtype": getattr(torch, dtype), "device": torch.device(device)}
        nodes[number] = graph.call_function(torch.ops.aten.full.default, ([], value), options)
    for name, overload, args, kwargs, results in part["calls"]:
        space, _, operation = name.partition("::")
        target = getattr(getattr(getattr(torch.ops, space), operation), overload)
        arguments = tuple(decoded(one, nodes.__getitem__) for one in args)
        node = graph.call_function(target, arguments, {k: decoded(v, nodes.__getitem__) for k, v in kwargs.items()})
        _name_results(graph, nodes, results, node)
    graph.output([nodes[number] for number in part["outputs"]])
    return torch.fx.GraphModule({}, graph)


def _name_results(graph: Any, nodes: dict[int, Any], results: Any, node: Any) -> None:
    if isinstance(results, list):
        for position, result in enumerate(results):
            _name_results(graph, nodes, result, graph.call_function(operator.getitem, (node, position)))
    elif results is not None:
        # An operation in place returns what it was given.
        nodes.setdefault(results, node)


def examples_of(part: dict[str, Any]) -> list[Any]:
    """Tensors like those that the part will be given; zeros are in the range of every index."""
    import torch

    def example(shape: list[int], stride: list[int], dtype: str, device: str) -> torch.Tensor:
        return torch.empty_strided(shape, stride, dtype=getattr(torch, dtype), device=device).zero_()

    return [example(*part["layouts"][str(number)]) for number in part["inputs"]]


def compile_part(part: dict[str, Any], options: dict[str, Any]) -> Any:
    """Inductor's artifact of a part, which can be called and saved."""
    import torch
    from torch._inductor import standalone_compile

    with torch.no_grad():
        return standalone_compile(
            module_of(part),
            examples_of(part),
            dynamic_shapes="from_example_inputs",
            options={"config_patches": options},
            aot=True,
        )


def _end_with_the_other() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    # Whoever waits for what is told must not wait for the end of every process that has inherited the pipe.
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_other, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(10)
    import torch

    for path, value in job["torch"].items():
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, torch)
        if callable(getattr(owner, name)):
            getattr(owner, name)(value)
        else:
            setattr(owner, name, value)
    for part, file in zip(job["parts"], map(Path, job["files"]), strict=True):
        if not file.exists():
            unfinished = file.with_suffix(f".{os.getpid()}")
            try:
                compile_part(part, job["options"]).save(path=str(unfinished), format="binary")
            except Exception as error:
                lines = str(error).strip().splitlines() or [""]
                print(f"{type(error).__name__}: {lines[0][:300]}", file=told, flush=True)
                return
            unfinished.replace(file)


if __name__ == "__main__":
    main()
