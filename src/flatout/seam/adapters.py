"""Keras' data adapters: what it takes for data, and the forms in which an adapter gives batches to each backend."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple


def _keras() -> Any:
    from keras.src.trainers import data_adapters

    return data_adapters


class AdaptedArrays(NamedTuple):
    """Arrays as Keras' array adapter holds them, packed for `train_step`; the batch size may be Keras' choice."""

    inputs: Any
    rows: int
    batch_size: int


def adapted_arrays(x: Any, y: Any, **arguments: Any) -> AdaptedArrays:
    """Arrays that Keras' own adapter has checked: it compares lengths, replicates weights, chooses the batch size."""
    adapter = array_adapter_class()(x, y, **arguments)
    return AdaptedArrays(adapter._inputs, int(adapter._num_samples), int(adapter._batch_size))


def are_arrays(structure: Any) -> bool:
    """Whether Keras addresses all parts of a structure by row numbers."""
    return bool(_keras().array_data_adapter.can_convert_arrays(structure))


def array_adapter_class() -> Any:
    return _keras().array_data_adapter.ArrayDataAdapter


@functools.cache
def adapter_class_drawing_ahead() -> Any:
    """The array adapter, with a method that may give the batches of a pass in the place of those that it would draw."""

    class ForeseeingAdapter(array_adapter_class()):  # type: ignore[misc]
        def drawn_batches(self) -> Iterable[Any] | None:
            return None

        def _get_iterator(self, *arguments: Any) -> Iterator[Any]:
            batches = self.drawn_batches()
            yield from super()._get_iterator(*arguments) if batches is None else batches

    return ForeseeingAdapter


def adapter_class() -> Any:
    """The class that all data adapters derive from."""
    return _keras().data_adapter.DataAdapter


def arrays_behind(adapter: Any) -> Any:
    """The arrays of an array adapter, packed as for `train_step`; None for other adapters."""
    return adapter._inputs if isinstance(adapter, array_adapter_class()) else None


def train_validation_split(arrays: Any, validation_split: float) -> tuple[Any, Any]:
    """Arrays without their last rows, and those."""
    train, held_out = _keras().array_slicing.train_validation_split(arrays, validation_split=validation_split)
    return train, held_out


def is_dataset(x: Any, kind: Literal["tf_dataset", "torch_dataloader", "grain_dataset"]) -> bool:
    """Whether Keras takes something for a dataset of this kind."""
    return bool(getattr(_keras(), f"is_{kind}")(x))


def has_dense_rows(array: Any) -> bool:
    """Whether an array is neither sparse nor ragged nor made of strings, as far as its library says."""
    kinds = _keras().data_adapter_utils
    if kinds.is_scipy_sparse(array) or kinds.is_jax_sparse(array):
        return False
    return not kinds.is_tensorflow_tensor(array) or not (
        kinds.is_tensorflow_ragged(array) or kinds.is_tensorflow_sparse(array) or array.dtype.name == "string"
    )


def as_tf_sparse(value: Any) -> Any:
    """A sparse matrix of scipy or jax as TensorFlow's; anything else as it is."""
    kinds = _keras().data_adapter_utils
    if kinds.is_scipy_sparse(value):
        return kinds.scipy_sparse_to_tf_sparse(value)
    return kinds.jax_sparse_to_tf_sparse(value) if kinds.is_jax_sparse(value) else value


def as_numpy_batches(batches: Iterable[Any]) -> Iterator[Any]:
    return _keras().data_adapter_utils.get_numpy_iterator(batches)  # type: ignore[no-any-return]


def as_jax_batches(batches: Iterable[Any]) -> Iterator[Any]:
    return _keras().data_adapter_utils.get_jax_iterator(batches)  # type: ignore[no-any-return]


def as_torch_loader(batches: Iterable[Any]) -> Any:
    """The `DataLoader` that Keras puts around batches."""
    return _keras().data_adapter_utils.get_torch_dataloader(batches)


def tf_signature(batch: Callable[[int], Any], batches: int | None) -> Any:
    """The signature of a `tf.data.Dataset` of so many batches, if known, of which Keras looks at the first few."""
    adapters = _keras().data_adapter_utils
    count = adapters.NUM_BATCHES_FOR_TENSOR_SPEC
    return adapters.get_tensor_spec(
        [batch(number) for number in range(count if batches is None else min(count, batches))]
    )


def raw_batches(adapter: Any) -> Iterator[Any]:
    """The batches of a `PyDataset`'s adapter in the order that it draws, as the dataset gives them."""
    return adapter._get_iterator()  # type: ignore[no-any-return]


def standardized(adapter: Any, batch: Any) -> Any:
    """A batch of a `PyDataset` as its adapter passes it on: checked, and with class weights."""
    return adapter._standardize_batch(batch)


def looked_at(adapter: Any) -> list[Any]:
    """The first batches of a generator, which its adapter has taken to see their shapes."""
    return adapter._first_batches  # type: ignore[no-any-return]


def dataset_behind(adapter: Any) -> Any:
    """The user's own object behind the adapter of a `tf.data.Dataset`, DataLoader or grain dataset."""
    return adapter._dataset
