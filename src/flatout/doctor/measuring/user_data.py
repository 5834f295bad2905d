"""What a fit was given to train on: read for some steps by a measurement, and afterwards as if it had not been."""

from __future__ import annotations

import copy
import itertools
import random
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.base.when_used import keras, tf
from flatout.engines.contract import Engine
from flatout.engines.rewind import Generators, generators_kept
from flatout.seam.adapters import is_dataset
from flatout.seam.epoch_iterators import iterator_class, plain_iterator_class
from flatout.seam.trainers import build_on_batch, build_on_iterator, strategy_arguments, trainer_module

from .step_clock import TooFewBatches

# Of a generator, which cannot go back, batches are kept for the fit itself.
_MOST_BYTES_KEPT = 1 << 30
# To see which shapes they have.
_MOST_LOOKED_AT, _SECONDS_OF_LOOKING = 64, 1.0
_OF_DATA = ("x", "y", "sample_weight", "batch_size", "shuffle", "class_weight")


class UserData:
    """The data of a call of `fit`, without its validation.

    Attributes:
        kind: "arrays", "generator", "PyDataset", "tf.data", or the name of another class.
        ahead: Batches that may lie ready before a measurement begins, and must be used up first.
        unrestored: Why a fit that goes on may see the data otherwise; empty if it does not.
        reads: When each batch of a generator was asked for and how long it took, in seconds of `perf_counter`.
    """

    def __init__(self, call: dict[str, Any], engine: Engine):
        self._call, self._engine = call, engine
        self._source, self.ahead, self.unrestored = call["x"], 0, ""
        self._kept: list[tuple[Any, Generators, Generators]] = []
        # What a generator draws goes on from batch to batch, whatever others draw meanwhile and put back.
        self._drawn = Generators.now(engine)
        self.reads: list[tuple[float, float]] = []
        self._generators: list[tuple[Any, Any]] = []
        self._has_ended = False
        x = call["x"]
        if hasattr(x, "__next__"):
            self.kind = "generator"
            # TensorFlow and torch look at some batches first, and TensorFlow reads ahead.
            self.ahead = 2
        elif isinstance(x, keras.utils.PyDataset):
            self.kind = "PyDataset"
            has_workers = x.workers > 1 or x.use_multiprocessing
            self.ahead = x.max_queue_size + 1 if has_workers else 1
            if has_workers:
                self.unrestored = "with workers, the order in which a PyDataset is read may be another one."
            try:
                self._source = copy.deepcopy(x)
            except Exception:
                self.unrestored = f"{type(x).__name__} could not be copied, and was read itself."
        elif is_dataset(x, "tf_dataset"):
            self.kind = "tf.data"
            self.ahead = 8
            self._source = _copied_dataset(x)
            self.unrestored = "a tf.data.Dataset that shuffles gives the next passes in another order."
        elif call["y"] is None and not all(hasattr(leaf, "shape") for leaf in keras.tree.flatten(x)):
            self.kind = type(x).__name__
            self.ahead = 2 * getattr(x, "num_workers", 0)
            owners = [x, *(getattr(x, name, None) for name in ("sampler", "batch_sampler"))]
            drawn: list[Any] = [getattr(owner, "generator", None) for owner in owners]
            self._generators = [(one, one.get_state()) for one in drawn if hasattr(one, "get_state")]
        else:
            self.kind = "arrays"

    def in_batches_of(self, rows: int) -> UserData:
        """The same arrays in other batches."""
        return UserData({**self._call, "batch_size": rows}, self._engine)

    def reading(self, steps: int) -> dict[str, Any]:
        """Arguments of a `fit` that reads so many batches."""
        arguments = {name: self._call[name] for name in _OF_DATA}
        if self.kind == "generator":
            if self._has_ended:
                raise TooFewBatches(f"The generator ended after {len(self._kept)} batches.")
            arguments["x"] = self._recorded()
        elif self.kind == "tf.data" and self.batches_in_pass() is None:
            arguments["x"] = self._source.repeat()
        elif self.kind != "arrays":
            arguments["x"] = self._source
        in_pass = self.batches_in_pass()
        if in_pass is not None and in_pass < steps:
            if self.kind == "arrays":
                # Without the rest, which is a batch of another size.
                arguments |= self._first_rows(in_pass * self.batch_size())
            return {**arguments, "epochs": -(-steps // in_pass)}
        return {**arguments, "steps_per_epoch": steps, "epochs": 1}

    def epochs(self, steps: int, count: int) -> dict[str, Any]:
        """Arguments of a `fit` of so many epochs of `steps` each."""
        arguments = self.reading(steps)
        if arguments["epochs"] == 1 and steps == self.batches_in_pass():
            # A pass each, as the user's epochs are: a new one begins.
            arguments |= self._first_rows(steps * self.batch_size()) if self.kind == "arrays" else {}
            arguments["steps_per_epoch"] = None
        return {**arguments, "epochs": count}

    def _first_rows(self, rows: int) -> dict[str, Any]:
        def first(leaf: Any) -> Any:
            return None if leaf is None else leaf.iloc[:rows] if hasattr(leaf, "iloc") else leaf[:rows]

        return {name: keras.tree.map_structure(first, self._call[name]) for name in ("x", "y", "sample_weight")}

    def batches_in_pass(self) -> int | None:
        """Whole batches of a pass over the data; None if it has no end that anybody knows."""
        if self.kind == "generator":
            return None
        if self.kind == "arrays":
            rows = len(keras.tree.flatten(self._call["x"])[0])
            return max(1, rows // self.batch_size())
        if self.kind == "tf.data":
            count = int(self._source.cardinality())
            return count if count > 0 else None  # Infinite, or not known.
        try:
            count = len(self._source) if self.kind != "PyDataset" else self._source.num_batches
        except TypeError:
            return None
        return None if count is None else int(count)

    def batch_size(self) -> int:
        """Rows of a batch."""
        if self.kind == "arrays":
            return min(self._call["batch_size"] or 32, len(keras.tree.flatten(self._call["x"])[0]))
        return len(keras.tree.flatten(self.first_batch())[0])

    def first_batch(self) -> Any:
        """One batch as NumPy arrays, as Keras' own adapter gives it: with weights of classes and all."""
        if not hasattr(self, "_first"):
            batch = next(self._plain_iterator(shuffle=False))
            batch = keras.tree.map_structure(lambda leaf: None if leaf is None else np.asarray(leaf), batch)
            while isinstance(batch, tuple) and batch[-1] is None:  # No sample weights.
                batch = batch[:-1]
            self._first = batch
        return self._first

    def some_batches(self) -> Iterator[Any]:
        """The first ones of a pass, as far as they can be had in a moment."""
        if self.kind == "arrays":
            rows, size = len(keras.tree.flatten(self._call["x"])[0]), self.batch_size()
            whole = self.first_batch()
            yield whole
            if rows % size:
                yield keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[: rows % size], whole)
            return
        if self.kind == "generator":
            yield from (batch for batch, _, _ in self._kept[:_MOST_LOOKED_AT])
            return
        until = time.perf_counter() + _SECONDS_OF_LOOKING
        for batch in itertools.islice(self._plain_iterator(shuffle=False), _MOST_LOOKED_AT):
            yield batch
            if time.perf_counter() > until:
                return

    @property
    def has_processes(self) -> bool:
        """Whether other processes read it, in which no line can be seen."""
        return bool(getattr(self._source, "use_multiprocessing", False) or getattr(self._source, "num_workers", 0))

    def read_here(self, seconds: float) -> None:
        """Read what worker processes read, in this one."""
        items = getattr(self._source, "dataset", self._source)
        if not (hasattr(items, "__getitem__") and hasattr(items, "__len__")):
            return
        until = time.perf_counter() + seconds
        for number in itertools.cycle(range(len(items))):
            items[number]
            if time.perf_counter() > until:
                return

    def _plain_iterator(self, **changes: Any) -> Iterator[Any]:
        arguments = {name: self._call[name] for name in _OF_DATA}
        arguments["x"] = self._recorded() if self.kind == "generator" else self._source
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            iterator = plain_iterator_class()(**{**arguments, **changes})
        return iter(iterator.data_adapter.get_numpy_iterator())

    def build(self, model: Any) -> None:
        """Build a model as a `fit` does at its beginning, drawing what that draws."""
        if not self._engine.peeks_to_build:
            with generators_kept(self._engine):
                batch = self.first_batch()
            build_on_batch(model, batch)
            return
        arguments = {name: self._call[name] for name in (*_OF_DATA, "steps_per_epoch")}
        arguments["x"] = self._recorded() if self.kind == "generator" else self._source
        backend = iterator_class(trainer_module(keras.config.backend()))
        steps = model.steps_per_execution
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The fit itself will warn.
            build_on_iterator(model, backend(**arguments, steps_per_execution=steps, **strategy_arguments(model)))
        # Of Python's numbers, layers have drawn some for their seeds.
        self._drawn = replace(self._drawn, python=random.getstate())

    def put_back(self) -> None:
        """Have the generators of a DataLoader as they were."""
        for generator, state in self._generators:
            generator.set_state(state)

    def left(self, x: Any) -> Any:
        """`x` for the fit itself, as it was given: a generator from its first batch on."""
        return _again(self._kept, x, self._engine) if self.kind == "generator" else x

    def _recorded(self) -> Iterator[Any]:
        size = 0
        while True:
            around = Generators.now(self._engine)
            self._drawn.put_back(self._engine)
            began = time.perf_counter()
            batch = next(self._call["x"], self._kept)
            seconds, before, self._drawn = time.perf_counter() - began, self._drawn, Generators.now(self._engine)
            around.put_back(self._engine)
            if batch is self._kept:
                self._has_ended = True
                return
            self.reads.append((began, seconds))
            self._kept.append((batch, before, self._drawn))
            size = size or sum(getattr(leaf, "nbytes", 0) for leaf in keras.tree.flatten(batch))
            yield batch
            if size * len(self._kept) > _MOST_BYTES_KEPT:
                self._has_ended = True
                return


def _again(kept: list[tuple[Any, Generators, Generators]], rest: Iterator[Any], engine: Engine) -> Iterator[Any]:
    """What was read, as if it were drawn now; then what was not."""
    for batch, before, after in kept:
        now = Generators.now(engine)
        if now.numpy == before.numpy:
            after.put_back_numpy()
        if now.python == before.python:
            random.setstate(after.python)
        if now.of_engine == before.of_engine != after.of_engine:
            engine.set_generator_state(after.of_engine)
        yield batch
    yield from rest


def _copied_dataset(dataset: Any) -> Any:
    """A dataset of its own random order, so that the order of the user's is not used up; the same if it cannot be."""
    try:
        graph = tf.raw_ops.DatasetToGraphV2(
            input_dataset=dataset._variant_tensor, external_state_policy=1, strip_device_assignment=True
        )
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph)
        return tf.data.experimental.from_variant(variant, dataset.element_spec)
    except Exception:
        return dataset
