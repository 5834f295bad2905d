"""The array program as a graph."""

from __future__ import annotations

import pytest

from flatout.vectorize.arrays.expression_graph import ExpressionGraph

pytestmark = pytest.mark.backend("jax")  # Nothing is run.


def test_every_expression_once_and_inputs_first_however_deep() -> None:
    graph = ExpressionGraph()
    first = node = graph.name("x")
    for _ in range(5000):
        node = graph.binary("+", node, first)
    found = list(node.and_below())
    assert (len(found), found[0], found[-1]) == (5001, first, node)
    at = {one: place for place, one in enumerate(found)}
    assert all(at[part] < at[one] for one in found for part in one.inputs())
