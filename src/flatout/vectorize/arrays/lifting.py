"""What is known while one function is lifted: the expressions, the masks, and how arrays were made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .expression_graph import ExpressionGraph, Node
from .lifted_values import Axis, Refused, Tensor


@dataclass(frozen=True)
class Made:
    """How an array was computed from others, to compute it again from what stands in for them."""

    dims: tuple[Axis, ...]  # Of the result, in the order of the array.
    parts: tuple[Tensor, ...]  # What it was computed from, with dimensions by the names that the result has for them.
    again: Callable[[list[Tensor], dict[Axis, Axis]], Tensor]  # The same of other arrays, with other names for these.


class Lifting:
    """What is known while one function is lifted."""

    def __init__(
        self,
        gradient_of: str | None = None,
        is_careful: bool = False,
        is_exact: bool = False,
        is_rounding: bool = False,
        integers: str = "int32",
    ) -> None:
        self.graph = ExpressionGraph()
        self.is_rounding = is_rounding  # Whether whole numbers of the data are floats: no digit is lost at the front.
        self.integers = integers  # The widest that the backend has.
        # Whether what arrays hold where a statement does not run is kept out: it may be NaN.
        self.is_careful = is_careful
        self.is_exact = is_exact  # Whether the mean of no element at all is NaN, as it is in the original, and not 0.
        self.masks: list[Tensor] = []  # Conditions under which the statement runs, of each enclosing loop or branch.
        self.notes: list[str] = []  # What the user shall know about the rewrite.
        self.changes: set[str] = set()  # What was changed, by rule code; empty: there is nothing to rewrite.
        self.hints: list[tuple[Any, ...]] = []  # What was learned of the values of parameters, to make inputs.
        self.guards: list[tuple[Node, bool]] = []  # Constants that decided a branch: their truth must stay.
        self.is_tie_sensitive = False
        self.rounded: set[Node] = set()  # Whole numbers of Python that became floats of 32 bits: they may be large.
        # Whole numbers of the data, and how they are had in the type that the data are of.
        self.wholes: dict[Node, Node] = {}
        self.numbers: dict[Node, Any] = {}  # The constants that take part in the arithmetic.
        self.stable: set[Node] = set()  # Sorts that promise the order of equal entries.
        self.slices: dict[Node, tuple[Node | None, Node | None]] = {}  # The bounds of the slice that a mask stands for.
        self.made: dict[Node, Made] = {}  # How arrays were computed, see `reductions`.
        # How an entry of a table is looked up again, rounded for a comparison, see `exact_numbers`.
        self.entries: dict[Node, Callable[[str], Tensor]] = {}
        self._mapped = 0
        self._gradient_of = gradient_of
        self._depends: dict[Node, bool] = {}

    @contextlib.contextmanager
    def masked(self, condition: Any) -> Iterator[None]:
        """Statements that run where a condition holds."""
        outer, self.masks = self.masks, [*self.masks, *([condition] if isinstance(condition, Tensor) else [])]
        try:
            yield
        finally:
            self.masks = outer

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def learn(self, kind: str, of: Tensor, *what: Any) -> None:
        """Keep what was learned of the values of a parameter, if these are its entries."""
        if of.domain:
            self.hints.append((kind, of.domain, *what))

    def guard(self, condition: Node, truth: bool = True) -> None:
        """Let the rewrite hold only while a condition is what it is now."""
        if (condition, truth) not in self.guards:
            self.guards.append((condition, truth))

    def stays(self, node: Node, value: Any) -> None:
        """Let the rewrite hold only while an expression has the value that it has now."""
        if not node.is_written:
            number = value.item() if hasattr(value, "item") else value
            self.guard(self.graph.binary("==", node, self.graph.const(number)))

    def sized_by(self, value: Any) -> None:
        """Keep that the original takes as many steps or digits as a value says: large ones would take it for ever."""
        if isinstance(value, Tensor):
            self.hints += [("steps", node.parts[0]) for node in value.node.and_below() if node.kind == "name"]

    def fresh(self, wish: str) -> str:
        """A name for the argument of a function that the rewrite maps, one that no other has."""
        self._mapped += 1
        return f"{wish}_of_{self._mapped}" if self._mapped > 1 else wish

    def is_rounded(self, node: Node) -> bool:
        """Whether an expression is made of large whole numbers, so that its last digits are not known."""
        return bool(self.rounded) and any(one in self.rounded for one in node.and_below())

    def exact(self, value: Tensor) -> None:
        """Refuse whole numbers of Python that became floats where every digit counts."""
        if value.is_host and self.is_rounded(value.node):
            raise Refused(
                f"Every digit counts of a whole number that may need more than {self.integers[3:]} bits: it is "
                "compared, divided with a remainder, or used as a key or index.",
                "FO101",
            )

    def carries_gradient(self, node: Node) -> bool:
        """Whether a gradient with respect to the predictions can flow through an expression."""
        if node not in self._depends:
            if node.kind == "call" and node.parts[0] == "ops.stop_gradient":
                found = False
            elif node.kind == "name":
                found = self._gradient_of is None or node.parts[0] == self._gradient_of
            else:
                found = any(self.carries_gradient(part) for part in node.inputs())
            self._depends[node] = found
        return self._depends[node]
