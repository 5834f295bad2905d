"""Keras, flat out: fit, evaluate and predict at the speed of the device, without a change to your script."""

from flatout.base.errors import CannotLower as CannotLower
from flatout.base.errors import CannotVectorize as CannotVectorize
from flatout.base.errors import FallbackRefused as FallbackRefused
from flatout.base.errors import FlatoutError as FlatoutError
from flatout.base.errors import InvalidOption as InvalidOption
from flatout.base.errors import MissingExtra as MissingExtra
from flatout.base.errors import Reason as Reason
from flatout.base.errors import TableError as TableError
from flatout.base.options import Options as Options
from flatout.base.options import options as options
from flatout.base.report import RunReport as RunReport
from flatout.base.version import __version__ as __version__
from flatout.data.batches.feed import feed as feed
from flatout.native.lower import lower as lower
from flatout.runner.explain import explain as explain
from flatout.runner.notebook import load_ipython_extension as load_ipython_extension
from flatout.runner.notebook import unload_ipython_extension as unload_ipython_extension
from flatout.runner.switch import disable as disable
from flatout.runner.switch import enable as enable
from flatout.tables.loss.group_statistics import group_count as group_count
from flatout.tables.loss.group_statistics import group_max as group_max
from flatout.tables.loss.group_statistics import group_mean as group_mean
from flatout.tables.loss.group_statistics import group_min as group_min
from flatout.tables.loss.group_statistics import group_sum as group_sum
from flatout.tables.loss.group_statistics import group_var as group_var
from flatout.tables.loss.loss import loss as loss
from flatout.tables.table import Table as Table
from flatout.training.planning.plan import Plan as Plan
from flatout.vectorize.decorator import vectorize as vectorize

from .fit import evaluate as evaluate
from .fit import fit as fit
from .fit import plan as plan
from .fit import predict as predict

__all__ = [
    "CannotLower",
    "CannotVectorize",
    "FallbackRefused",
    "FlatoutError",
    "InvalidOption",
    "MissingExtra",
    "Options",
    "Plan",
    "Reason",
    "RunReport",
    "Table",
    "TableError",
    "disable",
    "enable",
    "evaluate",
    "explain",
    "feed",
    "fit",
    "group_count",
    "group_max",
    "group_mean",
    "group_min",
    "group_sum",
    "group_var",
    "load_ipython_extension",
    "loss",
    "lower",
    "options",
    "plan",
    "predict",
    "unload_ipython_extension",
    "vectorize",
]

# Users meet these names as `flatout.fit`; tracebacks and reprs shall say the same.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
