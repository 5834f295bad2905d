"""What the bytecode of a function says about it: which names it loads and which it stores."""

from __future__ import annotations

import dis
import types
from pathlib import Path

_SET_ANY_ATTRIBUTE = frozenset({"setattr", "delattr", "__setattr__", "__dict__", "vars"})
_READ_ANY_ATTRIBUTE = frozenset({"getattr", "__getattribute__", "__dict__", "vars", "asdict", "astuple", "attrgetter"})


class CodeNames:
    """Names in a function's code, which is kept so that its id stays its own.

    Attributes:
        is_users: Whether the user wrote it.
        globals: Names of globals that it loads; likewise `imports`, of modules.
        attributes: Names that it may load as attributes, also by `getattr`; all may be where `any_attribute`.
        stored_attributes: Names of attributes that it may set; None if any.
        stored_free: Variables of outer functions that it sets.
    """

    def __init__(self, code: types.CodeType, is_users: bool) -> None:
        found: dict[str, set[str]] = {}
        # Only the user's code is looked at closely, which takes longer than the step.
        for instruction in dis.get_instructions(code) if is_users else ():
            found.setdefault(instruction.opname, set()).add(instruction.argval)

        def operands(*names: str) -> frozenset[str]:
            return frozenset().union(*(found.get(name, ()) for name in names))

        self.code, self.is_users = code, is_users
        has_rest = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
        self.arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + has_rest]
        self.place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        self.attributes = frozenset(code.co_names)
        self.globals = operands("LOAD_GLOBAL", "LOAD_NAME") if is_users else self.attributes
        self.imports = operands("IMPORT_NAME")
        self.any_attribute = is_users and (bool(self.attributes & _READ_ANY_ATTRIBUTE) or "MATCH_CLASS" in found)
        if "getattr" in self.attributes:
            self.attributes |= {constant for constant in code.co_consts if isinstance(constant, str)}
        self.stored_globals = operands("STORE_GLOBAL", "DELETE_GLOBAL")
        self.stored_free = operands("STORE_DEREF", "DELETE_DEREF") & set(code.co_freevars)
        self.stored_attributes = None if self.attributes & _SET_ANY_ATTRIBUTE else operands("STORE_ATTR", "DELETE_ATTR")
