"""`flatout.Table`: a frame whose rows are joined inside a compiled loss, metric or `compute_loss`."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.base.when_used import ops, tree
from flatout.tables.columns.host_columns import INDEX, FrameColumn, read_frame
from flatout.tables.columns.value_columns import AGGREGATES, aggregated, converted, describe_values
from flatout.tables.joins.device_rows import gather, on_host, rows_between, variable
from flatout.tables.joins.join import ProductJoin
from flatout.tables.loss.table_state import attach, bring_home, is_frozen
from flatout.tables.loss.trainer_hooks import current_step, install

from . import table_report
from .index import TableIndex
from .row import Row, add_missed, write_rows

JOINS = ("auto", "dense", "searchsorted", "codes")
# Rows before and after those of the slots.
_RESERVED = (1, 2)
_numbers = itertools.count(1)


class Table:
    """A table on the device, joined by key inside a compiled loss, metric or `compute_loss`, on every backend.

    Keys that are integers of 32 bits are looked up as they are. Text, dates, 64-bit integers and combinations too many
    to hold are coded on the host, once, by `codes`; the codes then stand for the keys wherever these would.

    Args:
        frame: A frame of pandas, polars or Arrow, a pandas Series, a dict of arrays, or the path of a `.csv`,
            `.parquet`, `.feather`, `.arrow` or `.npz` file.
        key: The column that rows are found by, or several; by default the frame's index, or else the row number.
        columns: The columns to place on the device; by default all others.
        missing: What a key gives that is not in the table: `"raise"`, `"nan"`, a number, or a default for each column.
        mutable: Columns that `set` may change, or True for all; saved with the model's weights.
        intervals: The key column holds the lower ends of ranges closed on the `"left"`, up to the next one, or the
            upper ends of ranges closed on the `"right"`. A column of pandas intervals needs no such word.
        aggregate: What becomes of rows with the same key: `"mean"`, `"sum"`, `"min"`, `"max"`, `"first"` or `"last"`.
            By default they are an error.
        capacity: Room for that many keys, for later updates with new ones.
        join: `"auto"`, `"dense"`, `"searchsorted"` or `"codes"`.
        allow_nan: Whether columns may hold NaN.
        name: For messages.

    Raises:
        TableError: Keys are missing or occur twice, or a column is unknown or no numbers.

    Example:
        >>> import flatout, keras, numpy as np
        >>> costs = flatout.Table({"label": [0, 1, 2], "weight": [1.0, 5.0, 2.0]}, key="label")
        >>> def loss(y_true, y_pred):
        ...     row = costs.at(y_true)
        ...     return row.weight * keras.losses.sparse_categorical_crossentropy(y_true, y_pred)
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, activation="softmax")])
        >>> model.compile("sgd", loss)
        >>> history = model.fit(np.ones((32, 4)), np.arange(32) % 3, verbose=0)
        >>> costs.update({"label": [0, 1, 2], "weight": [1.0, 1.0, 1.0]})
    """

    # What a model's code is searched for.
    flatout_is_table = True

    def __init__(
        self,
        frame: Any,
        key: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        missing: Any = "raise",
        *,
        mutable: bool | Sequence[str] = (),
        intervals: str | None = None,
        aggregate: str | None = None,
        capacity: int | None = None,
        join: str = "auto",
        allow_nan: bool = False,
        name: str | None = None,
    ):
        _check_choice("join", join, JOINS)
        _check_choice("aggregate", aggregate, (None, *AGGREGATES))
        _check_choice("intervals", intervals, (None, "left", "right"))
        self.name = name or f"table {next(_numbers)}"
        self.missing = missing
        # Whether a missing key is an error.
        self.raises = isinstance(missing, str) and missing == "raise"
        self._aggregate, self._allow_nan = aggregate, allow_nan or missing == "nan"
        # The models whose state it is part of.
        self.models: weakref.WeakSet[Any] = weakref.WeakSet()
        # Which entries of x are looked up, seen while a loss is traced: what can be checked on the host.
        self.entries: set[tuple[Any, ...]] = set()
        read = read_frame(frame, needs_index=key is None)
        self.index = TableIndex(self.name, read, key, intervals, capacity, join)
        others = [n for n, column in read.items() if n not in self.key and not column.is_index]
        chosen = [str(n) for n in columns] if columns is not None else others
        if not chosen:
            raise TableError(f"A table needs a column beside its key. Received: the columns {sorted(read)}.")
        self.columns = describe_values(read, chosen, missing, takes_means=aggregate == "mean")
        self._mutable = _mutable_names(mutable, chosen)
        arrays = self._arranged(read)
        self._present = variable(np.pad(self.index.present, _RESERVED), "bool", "present")
        self._values = {name: variable(arrays[name], spec.dtype, name) for name, spec in self.columns.items()}
        self._missed = variable(np.zeros((), np.int32), "int32", "missed")
        install()

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.index.names

    @property
    def rows(self) -> int:
        """Keys in the table."""
        return len(self.index.rows)

    @property
    def size(self) -> int:
        """Slots for rows on the device: between two reserved rows with the defaults, and one for writes to nowhere."""
        return self.index.join.size

    @property
    def join(self) -> str:
        """The join chosen: `"dense"`, `"searchsorted"`, `"codes"`, `"intervals"`, or several of them."""
        return self.index.join.kind

    @property
    def duplicates(self) -> int:
        """Rows of the frame that were aggregated with an earlier one of the same key."""
        return self.index.duplicates

    @property
    def variables(self) -> list[Any]:
        """All that the table holds on the device."""
        return [*self.index.join.variables(), *self._values.values(), self._present, self._missed]

    def at(self, *keys: Any) -> Row:
        """The rows of a batch of keys.

        Args:
            *keys: One array of any shape for each key of the table, or one array of codes for all of them.

        Returns:
            A `Row`: `row.weight` or `row["weight"]` for a column, `row.found` for which keys are in the table; each of
            the shape of the keys.

        Raises:
            TableError: The keys come as floats that cannot tell them apart, or as text inside a step.
        """
        row = self._joined(keys)
        if self.raises:
            add_missed(self._missed, row.found)
        return row

    def set(self, *keys: Any, **columns: Any) -> None:
        """Write to mutable columns, in a step that trains or outside of all.

        In evaluate nothing is written. Keys that are not in the table are passed over. Of a key that occurs more than
        once in a batch one value is kept, no matter which.

        Args:
            *keys: As for `at`.
            **columns: New values by column, of the shape of the keys.

        Raises:
            TableError: A column is unknown or not mutable.
        """
        for name in columns:
            if name not in self._mutable:
                raise TableError(
                    f"The column {name!r} of {self.name} cannot be set. Expected one of {sorted(self._mutable)}: make "
                    "the table with `mutable=[...]`."
                )
        step = current_step()
        if step is None:
            bring_home(self)
        elif not step.training:
            return
        row = self._joined(keys)
        for name, values in columns.items():
            write_rows(self._values[name], row, values, self.columns[name])

    def codes(self, *values: Any, **named: Any) -> np.ndarray:
        """Numbers of 32 bits that stand for keys, made on the host: for text, dates and 64-bit integers.

        Args:
            *values: The values of each key of the table.
            **named: Or the values of one key of several, by its name.

        Returns:
            An int32 array for `x`, to be passed to `at` or `set`.

        Raises:
            TableError: A key is not in the table and `missing="raise"`.

        Example:
            >>> import flatout
            >>> costs = flatout.Table({"city": ["Bonn", "Ulm"], "cost": [3.0, 4.0]}, key="city", missing={"cost": 0.0})
            >>> costs.codes(["Ulm", "Bonn", "Rome"])
            array([ 1,  0, -1], dtype=int32)
        """
        if len(named) == 1 and not values:
            ((name, given),) = named.items()
            return self.index.codes_of_part(name, given, self.raises)
        if named:
            raise TableError(f"Pass the values of all keys ({', '.join(self.key)}), or one of them by name.")
        return self.index.codes(values, self.raises)

    def check(self, *values: Any) -> None:
        """Raise if keys are not in the table, with examples.

        Raises:
            TableError: Some are not.
        """
        self.index.found(values, must_be_present=True)

    def update(self, frame: Any) -> None:
        """Take the rows of another frame in the place of all; compiled steps see them at once, without a retrace.

        Keys may come and go; new ones need room, which a table with gaps has or `capacity` makes.

        Raises:
            TableError: As for the table itself; or there is no room for new keys. The table stays as it was.
        """
        read = read_frame(frame, needs_index=self.key == (INDEX,))
        for name in self.columns:
            if name not in read:
                raise TableError(f"The new frame has no column {name!r}. Received: {sorted(read)}.")
        bring_home(self)
        arrays = self._arranged(read)
        for name, values in arrays.items():
            self._values[name].assign(values)
        self._present.assign(np.pad(self.index.present, _RESERVED))
        self._missed.assign(np.zeros((), np.int32))

    def attach(self, model: Any) -> None:
        """Make the table part of a model's state by hand; flatout does so itself where it can see the use."""
        attach(self, model)

    def to_dict(self) -> dict[str, np.ndarray]:
        """The table as it is now: keys and columns by name, in the order of the frame."""
        bring_home(self)
        columns = {name: on_host(variable)[self.index.rows + 1] for name, variable in self._values.items()}
        return {**self.index.shown(), **columns}

    def explain(self, *values: Any, batch_size: int = 256) -> table_report.TableReport:
        """Say how the table is held and joined, and measure what a batch costs.

        Args:
            *values: Keys of the data on the host, whose coverage is to be told.
            batch_size: Keys a batch.

        Example:
            >>> import flatout
            >>> costs = flatout.Table({"label": [0, 1, 2], "weight": [1.0, 5.0, 2.0]}, key="label")
            >>> report = costs.explain([0, 1, 7])
            >>> report.join, report.rows, report.missing
            ('dense', 3, 1)
        """
        return table_report.explain(self, values, batch_size)

    def missed(self) -> int:
        """Keys looked up so far that are not in the table, with `missing="raise"`; counted on the device."""
        return int(on_host(self._missed))

    def refuse_missed(self) -> None:
        """Raise if a step has looked up keys that are not in the table; the count starts anew."""
        if self.raises and (count := self.missed()):
            self._missed.assign(np.zeros((), np.int32))
            raise TableError(
                f"{count} keys were looked up that are not in {self.name} (key {', '.join(map(repr, self.key))}), and "
                "`missing='raise'`. Their rows gave NaN. `table.check(keys)` shows which they are; or state what a "
                "missing key means: `missing={column: default}` or `missing='nan'`."
            )

    def mutable_columns(self) -> dict[str, Any]:
        """The variables of the columns that `set` may change."""
        return {name: variable for name, variable in self._values.items() if name in self._mutable}

    def lookup(self, keys: Sequence[Any]) -> Row:
        """`at` for keys on the device, without a look at the policy."""
        join = self.index.join
        if len(keys) == 1 and len(self.key) > 1:
            rows = rows_between(keys[0], 0, self.size - 1, " and ".join(self.key))
        elif len(keys) != len(self.key):
            raise TableError(f"Expected {len(self.key)} arrays of keys ({', '.join(self.key)}). Received: {len(keys)}.")
        elif len(self.key) > 1 and not isinstance(join, ProductJoin):
            raise TableError(
                f"The keys of {self.name} are coded together: they have too many combinations. Put "
                f"`table.codes({', '.join(self.key)})` into x and pass that."
            )
        else:
            rows = join.rows(keys if len(self.key) > 1 else keys[0])
        # The reserved rows hold the defaults, and are not present.
        return Row(self.name, self._values, rows, gather(self._present, rows))

    def __repr__(self) -> str:
        return f"<flatout.Table {self.name}: {self.rows} rows by {', '.join(self.key)}, columns {list(self.columns)}>"

    def _joined(self, keys: tuple[Any, ...]) -> Row:
        """The rows of keys as users have them, in a step that does not freeze the table."""
        if is_frozen(self._present):
            raise TableError(
                f"{self.name} is used by a step that is being compiled and is no part of the model's state, so that "
                "its values would be frozen. Call `table.attach(model)` before `fit`. A table can be joined in a loss, "
                "a metric or `compute_loss`."
            )
        if any(map(_is_on_host, keys)):
            return self.lookup(self._on_device(keys))
        self._note(keys)
        return self.lookup(keys)

    def _on_device(self, keys: tuple[Any, ...]) -> list[Any]:
        """Keys from the host as `lookup` takes them: coded, unless they are codes already, or in a range."""
        arrays = [np.asarray(values) for values in keys]
        are_codes = len(keys) == 1 and arrays[0].dtype == np.int32 and self.index.codes_are_slots
        if are_codes or "intervals" in self.join:
            return [ops.convert_to_tensor(array) for array in arrays]
        flat = [array.reshape(-1) if array.ndim != 1 else values for array, values in zip(arrays, keys, strict=True)]
        return [ops.convert_to_tensor(self.codes(*flat).reshape(arrays[0].shape))]

    def _note(self, keys: tuple[Any, ...]) -> None:
        """Remember where in x the keys come from, and whose loss looks them up."""
        step = current_step()
        if step is None:
            return
        attach(self, step.model)
        leaves = {id(leaf): path for path, leaf in tree.flatten_with_path(step.x)}
        if all(id(values) in leaves for values in keys):
            self.entries.add(tuple(leaves[id(values)] for values in keys))

    def _arranged(self, frame: Mapping[str, FrameColumn]) -> dict[str, np.ndarray]:
        """The columns as they lie on the device."""
        values = {name: converted(frame[name], spec, self._allow_nan) for name, spec in self.columns.items()}
        slots = self.index.take(frame, may_repeat=self._aggregate is not None)
        arrays = {}
        for name, spec in self.columns.items():
            own = aggregated(values[name], slots, self._aggregate) if self.duplicates else values[name]
            arrays[name] = np.full((self.size + sum(_RESERVED), *spec.shape), spec.default, own.dtype)
            arrays[name][self.index.rows + 1] = own
        return arrays


def _check_choice(argument: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        raise TableError(
            f"Invalid value for argument `{argument}`. Received: {argument}={value!r}. Expected one of "
            f"{', '.join(map(repr, choices))}."
        )


def _mutable_names(mutable: bool | Sequence[str], columns: Sequence[str]) -> frozenset[str]:
    names = frozenset(columns) if mutable is True else frozenset(map(str, mutable or ()))
    if unknown := names - set(columns):
        raise TableError(f"Unknown columns in argument `mutable`. Received: {sorted(unknown)}. Expected {columns}.")
    return names


def _is_on_host(values: Any) -> bool:
    module = type(values).__module__.partition(".")[0]
    on_host = isinstance(values, (np.ndarray, np.generic, list, tuple, str, int, float))
    return on_host or module in ("pandas", "polars", "pyarrow")
