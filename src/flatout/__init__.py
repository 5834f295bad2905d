"""Keras, flat out: fit, evaluate and predict at the speed of the device, without a change to your script."""

from flatout.base.errors import (
    CannotLower,
    CannotVectorize,
    DiagnosisFailed,
    FallbackRefused,
    FlatoutError,
    GroupFailed,
    InvalidOption,
    MissingExtra,
    Reason,
    TableError,
)
from flatout.base.options import Options, options
from flatout.base.report import RunReport
from flatout.base.version import __version__ as __version__
from flatout.data.batches.feed import feed
from flatout.doctor.diagnose import diagnose
from flatout.doctor.diagnosis import Diagnosis
from flatout.many.fit_many import fit_many
from flatout.many.grid import grid
from flatout.many.many import Many
from flatout.native.lower import lower
from flatout.runner.explain import explain
from flatout.runner.switch import disable, enable, load_ipython_extension, unload_ipython_extension
from flatout.tables.loss.group_statistics import group_count, group_max, group_mean, group_min, group_sum, group_var
from flatout.tables.loss.loss import loss
from flatout.tables.table import Table
from flatout.training.planning.plan import Plan
from flatout.vectorize.decorator import vectorize

from .fit import evaluate, fit, plan, predict

__all__ = [
    "CannotLower",
    "CannotVectorize",
    "Diagnosis",
    "DiagnosisFailed",
    "FallbackRefused",
    "FlatoutError",
    "GroupFailed",
    "InvalidOption",
    "Many",
    "MissingExtra",
    "Options",
    "Plan",
    "Reason",
    "RunReport",
    "Table",
    "TableError",
    "diagnose",
    "disable",
    "enable",
    "evaluate",
    "explain",
    "feed",
    "fit",
    "fit_many",
    "grid",
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
