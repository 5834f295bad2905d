"""Keras, flat out: fit, evaluate and predict at the speed of the device, without a change to your script."""

from .data.feed import feed as feed
from .data.plan import Plan as Plan
from .errors import FallbackRefused as FallbackRefused
from .errors import FlatoutError as FlatoutError
from .errors import InvalidOption as InvalidOption
from .errors import MissingExtra as MissingExtra
from .errors import Reason as Reason
from .fit import evaluate as evaluate
from .fit import fit as fit
from .fit import plan as plan
from .fit import predict as predict
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
    "FallbackRefused",
    "FlatoutError",
    "InvalidOption",
    "MissingExtra",
    "Options",
    "Plan",
    "Reason",
    "RunReport",
    "disable",
    "enable",
    "evaluate",
    "explain",
    "feed",
    "fit",
    "load_ipython_extension",
    "options",
    "plan",
    "predict",
    "unload_ipython_extension",
]

# Users meet these names as `flatout.fit`; tracebacks and reprs shall say the same.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
