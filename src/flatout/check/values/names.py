"""The names of a function while it is walked through, inside those of the functions and the module around it."""

from __future__ import annotations

from collections.abc import Iterator

from .abstract_values import UNKNOWN, AbstractValue, merge


class Names:
    """A scope. Branches work on copies that are merged afterwards."""

    def __init__(self, values: dict[str, AbstractValue], parent: Names | None = None, is_function: bool = True):
        self.values = values
        self.parent = parent
        self.is_function = is_function
        self.outside: set[str] = set()

    def bound_in(self, name: str) -> Names:
        """The scope that an assignment binds a name in."""
        scope = self
        while not scope.is_function and scope.parent is not None:
            # A walrus in a comprehension binds in the function; its own variables are set in `values` directly.
            scope = scope.parent
        return scope.owner(name) if name in scope.outside else scope

    def __setitem__(self, name: str, value: AbstractValue) -> None:
        self.bound_in(name).values[name] = value

    def lookup(self, name: str) -> tuple[AbstractValue | None, int]:
        """The value, and how many functions out it was found: 0 for local names."""
        scope: Names | None = self
        distance = 0
        while scope is not None:
            if name in scope.values and name not in scope.outside:
                return scope.values[name], distance
            distance += scope.is_function
            scope = scope.parent
        return None, distance

    def scope_of(self, name: str) -> Names:
        """The scope that `lookup` finds a name in; the outermost one, if none has it."""
        scope = self
        while scope.parent is not None and (name not in scope.values or name in scope.outside):
            scope = scope.parent
        return scope

    def inside_out(self) -> Iterator[Names]:
        """This scope and those around it."""
        scope: Names | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def get(self, name: str) -> AbstractValue:
        """The value, or `UNKNOWN`."""
        found, _ = self.lookup(name)
        return UNKNOWN if found is None else found

    def module(self) -> Names:
        """The outermost scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def snapshot(self) -> dict[str, AbstractValue]:
        """The local values, to come back to."""
        return dict(self.values)

    def join(self, other: dict[str, AbstractValue]) -> None:
        """Merge with the local values at the end of another branch."""
        for name, value in other.items():
            self.values[name] = merge(self.values[name], value) if name in self.values else value

    def owner(self, name: str) -> Names:
        """The scope around this one that a name of `global` or `nonlocal` is of."""
        scope = self.parent
        while scope is not None and scope.parent is not None and name not in scope.values:
            scope = scope.parent
        return scope or self
