"""The names of a function while it is walked through, inside those of the functions and the module around it."""

from __future__ import annotations

from collections.abc import Iterator

from .abstract_values import UNKNOWN, AbstractValue, merge


class Names:
    """A scope. Branches work on copies that are merged afterwards."""

    def __init__(self, values: dict[str, AbstractValue], parent: Names | None = None, kind: str = "function"):
        self.values = values
        self.parent = parent
        self.is_function = kind != "comprehension"  # Or a class, where names are bound likewise.
        self.is_class = kind == "class"
        self.outside: set[str] = set()

    def inside_out(self) -> Iterator[Names]:
        """This scope and those around it; that of a class is seen by what stands in the class alone."""
        scope: Names | None = self
        while scope is not None:
            if scope is self or not scope.is_class:
                yield scope
            scope = scope.parent

    def scope_of(self, name: str) -> Names | None:
        """The scope that a name is found in."""
        return next((one for one in self.inside_out() if name in one.values and name not in one.outside), None)

    def get(self, name: str) -> AbstractValue:
        """The value, or `UNKNOWN`."""
        scope = self.scope_of(name)
        return UNKNOWN if scope is None else scope.values[name]

    def module(self) -> Names:
        """The outermost scope."""
        *_, found = self.inside_out()
        return found

    def owner(self, name: str) -> Names:
        """The scope around this one that a name of `global` or `nonlocal` is of."""
        around = list(self.inside_out())[1:] or [self]
        return next((one for one in around if name in one.values), around[-1])

    def bound_in(self, name: str) -> Names:
        """The scope that an assignment binds a name in: a walrus in a comprehension binds in the function."""
        scope = next((one for one in self.inside_out() if one.is_function), self)
        return scope.owner(name) if name in scope.outside else scope

    def __setitem__(self, name: str, value: AbstractValue) -> None:
        self.bound_in(name).values[name] = value

    def join(self, other: dict[str, AbstractValue]) -> None:
        """Merge with the local values at the end of another branch."""
        for name, value in other.items():
            self.values[name] = merge(self.values[name], value) if name in self.values else value
