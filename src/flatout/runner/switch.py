"""`enable()` and `disable()`, in a notebook `%load_ext`: our functions in place of Keras' fit, evaluate and predict."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from flatout.base.options import clear_for_process, current, set_for_process
from flatout.seam import stock_methods as stock
from flatout.seam.versions import is_keras_3
from flatout.vectorize.compile_hook import restore_compile

from . import children, import_hook
from .import_collections import take_back
from .notice import tell

_settings: dict[str, Any] = {}


def enable(**settings: Any) -> None:
    """Accelerate `model.fit`, `model.evaluate` and `model.predict` from here on.

    Works before and after `import keras`, and may be called again: later settings are added to earlier ones.
    Worker processes that `multiprocessing` spawns are switched on too. With FLATOUT=0 it does nothing.

    Args:
        **settings: Fields of `flatout.Options`, for the whole process: `engine`, `strict`, ...

    Raises:
        InvalidOption: A setting or its value is unknown.

    Example:
        >>> import flatout
        >>> flatout.enable(engine="auto")
        >>> flatout.disable()
    """
    install(settings, quiet=False)


def install(settings: dict[str, Any], quiet: bool) -> None:
    """`enable(**settings)`; `quiet` keeps notices back, which the parent process gives already."""
    _settings.update(set_for_process(**{**_settings, **settings}))
    if not current().enabled:
        return
    import_hook.call_after_import("keras", functools.partial(_replace_methods, quiet=quiet))
    import_hook.call_after_import("multiprocessing.spawn", functools.partial(children.inherit, _settings))
    if not quiet:
        import_hook.call_after_import("tf_keras", _explain_keras_2)


def disable() -> None:
    """Give Keras its own methods back and forget the settings of `enable()`.

    Example:
        >>> import flatout
        >>> flatout.disable()
    """
    for name in ("keras", "multiprocessing.spawn", "tf_keras"):
        import_hook.forget(name)
    children.disinherit()
    stock.restore_methods()
    restore_compile()
    clear_for_process()
    _settings.clear()


def load_ipython_extension(ipython: Any) -> None:
    """Called by `%load_ext flatout`: accelerates the models of this notebook."""
    enable()


def unload_ipython_extension(ipython: Any) -> None:
    """Called by `%unload_ext flatout`: gives Keras its own methods back."""
    disable()


def _replace_methods(keras: ModuleType, quiet: bool) -> None:
    version = str(getattr(keras, "__version__", "unknown"))
    if not is_keras_3(version):
        if not quiet:
            tell(
                f"flatout accelerates Keras 3 only. Received: Keras {version}, which runs as usual. "
                'Upgrade with: pip install "keras>=3.12"'
            )
        return
    from flatout.fit import conduct

    def after_imports(*call: Any) -> Any:
        take_back()
        return conduct(*call)

    stock.replace_methods(after_imports)
    if current().vectorize:
        from flatout.vectorize.compile_hook import vectorize_compile

        vectorize_compile()


def _explain_keras_2(_: ModuleType) -> None:
    import_hook.forget("tf_keras")  # Once is enough.
    tell(
        "flatout accelerates Keras 3 only. Received: tf_keras (Keras 2), whose models run as usual. "
        "To accelerate them, port them to Keras 3: `import keras`, and unset TF_USE_LEGACY_KERAS."
    )
