"""What functions give, whatever library they are of: tables by the one name of all spellings of an operation."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from flatout.pysource.spellings import CREATORS, REDUCTIONS, plain

from . import abstract_values as av
from . import operation_results as operations
from .abstract_values import UNKNOWN, AbstractValue, Data, Sequence, Static, Tuple
from .names import Names
from .operation_results import NUMBER, elementwise, first_element, read_on_host, stacked

TO_HOST = frozenset({"convert_to_numpy", "get_value", "eval", "batch_get_value", "make_ndarray", "device_get"})
_STACKING = frozenset({"stack", "concatenate", "add_n", "hstack"}) | CREATORS
_SPLITS = frozenset({"split", "chunk", "array_split"})
_SECTIONS = ("indices_or_sections", "num_or_size_splits", "split_size_or_sections", "split_size", "chunks")
_BATCH_NAME = re.compile(r"batch|(^|_)bs$|n_?samples|num_?samples|sample_?count", re.IGNORECASE)
_TIME_NAME = re.compile(r"time|seq|horizon|frames?$|max_?len|n_?steps$|num_?steps$|window|positions?$", re.IGNORECASE)
_CLASS_NAME = re.compile(
    r"class|categor|channel|quantile|taus?$|bins?$|labels?$|heads?$|keypoint|outputs?$", re.IGNORECASE
)
_ZERO = Static("number", number=0)
_EMPTY = Static("list", length=0)


@dataclass(frozen=True)
class Given:
    """The arguments of a call, with the call itself and the names around it."""

    arguments: tuple[AbstractValue, ...]
    keywords: Mapping[str, AbstractValue]
    node: ast.Call
    names: Names

    @property
    def everything(self) -> list[AbstractValue]:
        return [*self.arguments, *self.keywords.values()]

    @property
    def first(self) -> AbstractValue:
        """What comes first, by position or by keyword."""
        return next(iter(self.everything), UNKNOWN)

    def at(self, place: int, *names: str) -> AbstractValue | None:
        """What is given by one of the keywords, else by position."""
        by_place = self.arguments[place] if len(self.arguments) > place else None
        return next((self.keywords[name] for name in names if name in self.keywords), by_place)

    @property
    def axis(self) -> AbstractValue | None:
        """The axis of a reduction or selection."""
        return self.at(1, "axis", "dim")


_Result = Callable[[Data, Given], AbstractValue]
_Handler = TypeVar("_Handler")


def _by_name(rows: Mapping[str, _Handler]) -> dict[str, _Handler]:
    """A table by each of the names of a row."""
    return {name: handler for names, handler in rows.items() for name in names.split()}


def array_result(name: str, short: str, given: Given) -> AbstractValue:
    """What an array operation gives; `name` is how it is spelled, `short` the one name of all its spellings."""
    everything, first = given.everything, given.first
    if not av.data_in(everything):
        if short in CREATORS:
            return UNKNOWN if av.is_unclear(given.arguments) else _created(short, given)
        if isinstance(first, av.Variable):
            return Data(axes=())
        return UNKNOWN if av.is_unclear(everything) else Data(axes=("constant",))
    if isinstance(first, (Sequence, Tuple)) and short in _STACKING:
        return stacked(first)
    if not isinstance(first, Data):
        result = elementwise(everything, short)
        # Rows of a table have axes of their own.
        is_unknown = av.is_unclear(everything) or short == "take"
        return result.but(rank=None, squeezed=False) if is_unknown else result
    if short in REDUCTIONS:
        keeps = any(isinstance(given.keywords.get(key), Static) for key in ("keepdims", "keepdim", "keep_dims"))
        return operations.reduced(first, given.axis, keeps, short)
    if short in _SPLITS:
        return _split(name, first, given)
    if short == "unique":
        found = first.but(axes=(av.GROUPS,), role="unique", differentiable=False)
        several = name.startswith("tensorflow.") or any(key.startswith("return_") for key in given.keywords)
        return Tuple((found, found, found)) if several else found
    result_of = _RESULTS.get(short)
    return result_of(first, given) if result_of else elementwise(everything, short)


def host_result(name: str, given: Given) -> AbstractValue:
    """What NumPy, pandas and the like give: on the host, without a gradient."""
    short = plain(name.rpartition(".")[2])
    data, first = av.data_in(given.everything), given.first
    if name.startswith("numpy.random."):
        return Static("rng" if short in ("default_rng", "RandomState", "Generator") else "array")
    if data:
        return _hosted(stacked(first) if isinstance(first, Sequence) else array_result(name, short, given))
    if short == "arange" and given.arguments:
        return _range(given)
    if any(isinstance(one, av.Unknown) for one in given.arguments) and not name.startswith("numpy."):
        return UNKNOWN
    if short in CREATORS and isinstance(first, Tuple):
        return Static("array", length=len(first.items))
    return Static("frame" if name.startswith(("pandas.", "polars.")) else "array")


def _hosted(value: AbstractValue) -> AbstractValue:
    if isinstance(value, Tuple):
        return Tuple(tuple(map(_hosted, value.items)), value.is_list)
    if isinstance(value, Sequence):
        return value.but(element=_hosted(value.element))
    return read_on_host(value) if isinstance(value, Data) else value


def _created(short: str, given: Given) -> Data:
    """A constant tensor."""
    shape: AbstractValue = given.keywords.get("shape", given.first)
    if short == "arange" and given.arguments:
        shape = Tuple(given.arguments[:2][-1:])
    if isinstance(shape, av.Shape):
        return Data(axes=shape.axes)
    sizes = shape.items if isinstance(shape, Tuple) else (shape,) if isinstance(shape, av.Size) else ()
    return Data(axes=tuple(size.label if isinstance(size, av.Size) else "constant" for size in sizes))


def _multiplied(first: Data, given: Given) -> AbstractValue:
    second = given.at(1)
    return operations.multiplied(first, second) if isinstance(second, Data) else elementwise(given.everything, "matmul")


def _reshaped(first: Data, given: Given) -> AbstractValue:
    """With another shape: the first axis is still that of the samples, and a flat one has lost the last."""
    shape = given.at(1, "shape")
    size = shape.items[0] if isinstance(shape, Tuple) and len(shape.items) == 1 else shape
    result = first.but(axes=av.AXES if first.origins else first.axes, rank=None, thin=False)
    is_flat = av.number_in(size) == -1 if size is not None else True
    return result.but(axes=first.axes, rank=-1, squeezed=True) if first.rank == 0 and is_flat else result


def _expanded(first: Data, given: Given) -> AbstractValue:
    at = av.whole_number(given.axis, -1)
    axes = (*first.axes[:at], av.NEW, *first.axes[at:]) if at >= 0 else first.axes
    return first.ranked(1, axes=axes, thin=at == -1)


def _squeezed(first: Data, given: Given) -> AbstractValue:
    is_last = given.axis is None or av.number_in(given.axis) in (1, -1)
    return first.ranked(-1, thin=False, squeezed=is_last and first.rank == 0)


def _cast(first: Data, given: Given) -> AbstractValue:
    """Of another dtype: integers have no gradient."""
    dtype = given.at(1, "dtype")
    *_, last = (ast.Constant(0), *given.node.args, *(one.value for one in given.node.keywords))
    word = dtype.text if isinstance(dtype, Static) and dtype.text else ast.unparse(last)
    is_whole = word.lower().split(".")[-1].startswith(("int", "uint", "bool", "long"))
    return first.but(differentiable=first.differentiable and not is_whole, role=first.role if is_whole else "")


def _taken(first: Data, given: Given) -> AbstractValue:
    indices = av.data_in(given.everything[1:])
    axes = indices[0].axes if indices else first.axes
    return elementwise(given.everything).but(axes=axes, differentiable=first.differentiable, rank=None)


def _chosen(first: Data, given: Given) -> AbstractValue:
    chosen = elementwise(given.everything[1:] or [first])
    return elementwise(given.everything).but(differentiable=chosen.differentiable)


def _split(name: str, first: Data, given: Given) -> Sequence:
    """Parts of an array: as many as an axis is long, where each has length 1 (torch) or their number is that length."""
    counts = [*given.arguments[1:], *(given.keywords[key] for key in _SECTIONS if key in given.keywords)]
    sections = counts[0] if counts else None
    if isinstance(sections, av.Size):
        return Sequence(first, sections.label)
    # A method is torch's: NumPy's arrays and TensorFlow's tensors have none of that name.
    by_size = name.startswith("torch.") or "." not in name
    if by_size and av.number_in(sections) == 1 and "chunk" not in name:
        axis = given.keywords.get("axis", given.keywords.get("dim", counts[1] if len(counts) > 1 else None))
        return Sequence(first, operations.size_of_axis(av.Shape(first.axes), av.whole_number(axis, 0)).label)
    return Sequence(first, av.STATIC)


def _contracted(first: Data, given: Given) -> Data:
    """What has other axes than its inputs."""
    return elementwise(given.everything).but(rank=None, thin=False)


_RESULTS: dict[str, _Result] = _by_name(
    {
        " ".join(TO_HOST): lambda first, given: read_on_host(first).but(loop=None),
        "numpy tolist to_py __array__": lambda first, given: read_on_host(first).but(loop=None),
        "item": lambda first, given: read_on_host(first).but(axes=(), loop=None),
        "shape": lambda first, given: av.Shape(first.axes),
        "size numel": lambda first, given: av.Size(first.label),
        "ndim rank dtype dim ndimension backward element_size": lambda first, given: NUMBER,
        "cpu cuda clone contiguous float double half copy requires_grad_": lambda first, given: first,
        "int long bool groupby merge map apply reindex join": lambda first, given: first.but(differentiable=False),
        "unstack": lambda first, given: operations.unstacked(first, given.axis),
        "matmul": _multiplied,
        "transpose": lambda first, given: operations.transposed(first),
        "reshape flatten": _reshaped,
        "top_k": lambda first, given: Tuple((first.but(role=""), first.but(role="", differentiable=False))),
        "expand_dims": _expanded,
        "squeeze": _squeezed,
        "cast to type": _cast,
        "zeros_like ones_like full_like": lambda first, given: Data(axes=first.axes, rank=first.rank),
        "take": _taken,
        "where": _chosen,
        "cdist pairwise_distance": lambda first, given: elementwise(given.everything).but(rank=None),
        " ".join(CREATORS): lambda first, given: first.but(on_host=False),
        "einsum tensordot segment_sum segment_mean segment_max": _contracted,
        "one_hot bincount": lambda first, given: _contracted(first, given).but(differentiable=False),
    }
)


# -- Python's own functions, and those of its library


def _number(given: Given) -> AbstractValue:
    first = given.first
    if isinstance(first, Data):
        return read_on_host(first).but(axes=(), loop=None)
    if isinstance(first, av.Variable):
        return Data(axes=(), on_host=True)
    is_text = isinstance(first, Static) and first.tag == "text"
    return first if isinstance(first, (av.Size, av.Counter, Static, av.Unknown)) and not is_text else NUMBER


def _range(given: Given) -> AbstractValue:
    start, stop = (_ZERO, *given.arguments[:2])[-2:] if given.arguments else (UNKNOWN, UNKNOWN)
    bound = start if isinstance(stop, Static) and not isinstance(start, Static) else stop
    last = given.node.args[min(1, len(given.node.args) - 1)] if given.node.args else given.node
    return counted_to(bound, ast.unparse(last), start)


def counted_to(bound: AbstractValue, text: str, start: AbstractValue = _ZERO) -> Sequence:
    """`range(start, bound)`: counts along what the bound is the length of, or what its name says."""
    label, stop = _counted_along(bound, text), av.number_in(bound)
    is_known = stop is not None and isinstance(start, Static)
    length = max(0, int((stop or 0) - (av.number_in(start) or 0))) if is_known else None
    return Sequence(av.Counter(label), label, isinstance(bound, Data), length)


def _counted_along(bound: AbstractValue, text: str) -> str:
    """The axis that a range to a bound runs along, by what the bound is or by its name."""
    if isinstance(bound, (av.Size, av.Counter)):
        return bound.label if bound.label != "constant" else av.STATIC
    if isinstance(bound, Data):
        return av.CLASSES if bound.role in ("max", "argmax") else av.AXES[1]
    word = re.split(r"[^\w]+", text.rstrip(")"))[-1]
    if _BATCH_NAME.search(word):
        return av.BATCH
    is_class = bool(_CLASS_NAME.search(word))
    if word == "T" or (_TIME_NAME.search(word) and not is_class):
        return av.AXES[1]
    return av.CLASSES if is_class else av.STATIC


def _length(given: Given) -> AbstractValue:
    first = given.first
    if isinstance(first, Data) or (isinstance(first, Sequence) and first.label != av.STATIC):
        return av.Size(first.label)
    if isinstance(first, Tuple):
        return Static("number", number=len(first.items))
    if isinstance(first, (Static, Sequence)):
        return Static("number", number=first.length)
    return NUMBER if isinstance(first, av.Shape) else UNKNOWN


def _listed(given: Given) -> AbstractValue:
    """`list`, `sorted`: of data, its entries along the first axis."""
    first = given.first if given.arguments else _EMPTY
    return Sequence(first_element(first), first.label) if isinstance(first, Data) else first


def _set(given: Given) -> AbstractValue:
    first = given.first if given.arguments else _EMPTY
    found = av.data_in([first])
    if not found:
        return first
    return Sequence(found[0].but(axes=found[0].axes[1:] if isinstance(first, Data) else found[0].axes), av.GROUPS, True)


def _sum(given: Given) -> AbstractValue:
    found = av.data_in(given.arguments)
    return elementwise(found) if found else _number_or_unknown(given)


def _extreme(given: Given) -> AbstractValue:
    if found := av.data_in(given.arguments):
        return elementwise(found).but(role="max", axes=())
    return next((one for one in given.arguments if isinstance(one, av.Size)), None) or _number_or_unknown(given)


def _number_or_unknown(given: Given) -> AbstractValue:
    return UNKNOWN if any(isinstance(one, av.Unknown) for one in av.flat(given.arguments)) else NUMBER


def _boolean(given: Given) -> AbstractValue:
    found = av.data_in(given.arguments)
    is_read = found and all(one.on_host for one in found)
    return Data(found[0].origins, axes=(), on_host=True, role="mask") if is_read else NUMBER


def _product(given: Given) -> AbstractValue:
    return av.Together(given.arguments * (av.whole_number(given.keywords.get("repeat"), 1) or 1), "product")


def _pairs(given: Given) -> AbstractValue:
    return av.Together((given.first,) * (av.whole_number(given.at(1), 2) or 2), "product")


def _indices(given: Given) -> AbstractValue:
    """`numpy.ndindex(a, b)`, `numpy.ndindex(x.shape)`."""
    first = given.first
    if isinstance(first, av.Shape):
        return av.Together(tuple(counted_to(av.Size(axis), "") for axis in first.axes), "product")
    sizes = first.items if isinstance(first, Tuple) else given.arguments
    return av.Together(tuple(counted_to(size, "") for size in sizes), "product")


PYTHON_RESULTS: dict[str, Callable[[Given], AbstractValue]] = _by_name(
    {
        "float int bool complex": _number,
        "round abs reversed iter copy.copy copy.deepcopy itertools.islice": lambda given: given.first,
        "range": _range,
        "len": _length,
        "list tuple sorted": _listed,
        "set frozenset": _set,
        "sum": _sum,
        "max min": _extreme,
        "any all": _boolean,
        "zip itertools.zip_longest": lambda given: av.Together(given.arguments, "zip"),
        "enumerate": lambda given: av.Together(given.arguments[:1], "enumerate"),
        "next": lambda given: Static(),
        "isinstance hasattr callable": lambda given: NUMBER,
        "str": lambda given: Static("text"),
        "open os.popen subprocess.run subprocess.check_output subprocess.Popen": lambda given: Static("file"),
        "print setattr": lambda given: Static("none"),
        "dict": lambda given: Static("dict"),
        "functools.partial jax.tree_util.Partial": lambda given: av.Together(given.arguments, "partial"),
        "itertools.product": _product,
        "itertools.combinations itertools.permutations itertools.combinations_with_replacement": _pairs,
        "itertools.pairwise": lambda given: av.Together(given.arguments[:1] * 2, "zip"),
        "itertools.chain": lambda given: av.merge_all(given.arguments),
        "numpy.ndindex": _indices,
        "numpy.vectorize": lambda given: av.Together((given.first,), "entries"),
    }
)
