"""Keras, flat out: fit, evaluate and predict at the speed of the device, without a change to your script."""

from .data.feed import feed as feed
from .data.plan import Plan as Plan
from .errors import CannotLower as CannotLower
from .errors import CannotVectorize as CannotVectorize
from .errors import FallbackRefused as FallbackRefused
from .errors import FlatoutError as FlatoutError
from .errors import InvalidOption as InvalidOption
from .errors import MissingExtra as MissingExtra
from .errors import Reason as Reason
from .errors import TableError as TableError
from .fit import evaluate as evaluate
from .fit import fit as fit
from .fit import plan as plan
from .fit import predict as predict
from .losses.groups import group_count as group_count
from .losses.groups import group_max as group_max
from .losses.groups import group_mean as group_mean
from .losses.groups import group_min as group_min
from .losses.groups import group_sum as group_sum
from .losses.groups import group_var as group_var
from .losses.loss import loss as loss
from .losses.tables.table import Table as Table
from .losses.vectorize import vectorize as vectorize
from .native.lower import lower as lower
from .options import Options as Options
from .options import options as options
from .report import RunReport as RunReport
from .report import explain as explain
from .runner.notebook import load_ipython_extension as load_ipython_extension
from .runner.notebook import unload_ipython_extension as unload_ipython_extension
from .runner.patch import disable as disable
from .runner.patch import enable as enable

__version__ = "0.1.0"

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
