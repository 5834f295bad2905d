"""A KerasTuner search whose trials are trained many at once: the tuner's oracle chooses them, `fit_many` runs them."""

from __future__ import annotations

import copy
import functools
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import InvalidOption, MissingExtra
from flatout.base.when_used import keras
from flatout.engines.select import engine_for

from .candidate import OwnGenerators
from .fit_many import fit_many

# What trains a trial: a tuner with one of its own may do what cannot be done at once.
_STEPS = ("run_trial", "_build_and_fit_model", "_try_build")
# What a tuner is told of a running trial; Keras Tuner's own do nothing there.
_HOOKS = ("on_batch_begin", "on_batch_end", "on_epoch_begin", "on_epoch_end")


def batched(tuner: Any, at_once: int = 16) -> Any:
    """Have the trials of a KerasTuner `Tuner` run many at once; returns the tuner.

    Its `search` takes the same arguments, and everything else is as before: the oracle, the project's folder, the best
    weights of each trial, `get_best_models()`. The oracle chooses as many trials before it hears of their results.

    Args:
        tuner: A `RandomSearch`, `GridSearch`, `BayesianOptimization`, or another `Tuner` that trains as they do.
        at_once: How many trials are asked of the oracle at a time.

    As in:

        tuner = flatout.many.keras_tuner_search.batched(keras_tuner.RandomSearch(build, "val_loss", max_trials=64))
        tuner.search(x, y, epochs=5, validation_data=(x_val, y_val))
        model = tuner.get_best_models()[0]
    """
    try:
        import keras_tuner
    except ImportError as error:
        raise MissingExtra("`batched` is for tuners of KerasTuner. Install it: pip install keras-tuner.") from error
    if not isinstance(tuner, keras_tuner.Tuner):
        raise InvalidOption(f"`batched` takes a tuner of KerasTuner. Received: {type(tuner).__name__}.")
    replaced = [step for step in _STEPS if getattr(type(tuner), step) is not getattr(keras_tuner.Tuner, step)]
    if replaced:
        raise InvalidOption(
            f"{type(tuner).__name__} runs its trials in a way of its own, `{replaced[0]}`, which cannot be "
            "done at once."
        )
    if tuner.distribution_strategy is not None:
        raise InvalidOption(
            "The tuner has a `distribution_strategy`, and many models are not distributed. Leave it out."
        )
    if type(tuner.hypermodel).fit is not keras_tuner.HyperModel.fit:
        raise InvalidOption("The hypermodel has a `fit` of its own, which cannot be done for many models at once.")
    if at_once < 1:
        raise InvalidOption(f"At least one trial runs at a time. Received: at_once={at_once}.")
    tuner.search = functools.partial(_search, tuner, at_once)
    return tuner


def _search(tuner: Any, at_once: int, *args: Any, **kwargs: Any) -> None:
    tuner.on_search_begin()
    callbacks = kwargs.pop("callbacks", None) or []
    while trials := _asked(tuner, at_once):
        for trial in trials:
            tuner.on_trial_begin(trial)
        built = [trial for trial in trials if _can_be_built(tuner, trial)]
        if built:
            _run(tuner, built, callbacks, args, dict(kwargs))
        for trial in trials:
            # Not sooner: the oracle compares those that are completed, and scores each as it ends.
            if trial in built:
                trial.status = "COMPLETED"
            tuner.on_trial_end(trial)
    tuner.on_search_end()


def _asked(tuner: Any, count: int) -> list[Any]:
    """The next trials; fewer if the oracle wants to hear of some first, none when it is done."""
    trials = []
    for number in range(count):
        # To one that asks under the same name again it gives the same trial.
        trial = tuner.oracle.create_trial(f"{tuner.tuner_id}-{number}")
        if trial.status != "RUNNING":
            break
        trials.append(trial)
    return trials


def _can_be_built(tuner: Any, trial: Any) -> bool:
    """Whether a trial has a model; one that has none is invalid, as with the tuner's own search, and hurts no other."""
    from keras_tuner.src import errors

    try:
        with OwnGenerators(engine_for(keras.config.backend())).seeded(0):
            _built(tuner, trial)
    except errors.FatalError:
        raise
    except Exception as error:
        trial.status = "FAILED" if isinstance(error, errors.FailedTrialError) else "INVALID"
        trial.message = traceback.format_exc()
        return False
    return True


def _built(tuner: Any, trial: Any) -> Any:
    """As the tuner's `_try_build` does, which would also clear the session, in which the others are."""
    from keras_tuner.src import errors
    from keras_tuner.src.engine.tuner import maybe_compute_model_size

    own = copy.copy(tuner)
    # Metrics have variables: models that are trained at once would share them.
    own.metrics = copy.deepcopy(tuner.metrics)
    model = own._build_hypermodel(trial.hyperparameters)
    if not isinstance(model, keras.Model):
        raise errors.FatalTypeError(f"`build` returns a Keras model. Received: {type(model).__name__}.")
    size = maybe_compute_model_size(model)
    if tuner.max_model_size and size > tuner.max_model_size:
        raise errors.FailedTrialError(f"Oversized model: {size} parameters. Skip model.")
    return model


def _run(tuner: Any, trials: list[Any], callbacks: list[Any], args: Any, kwargs: dict[str, Any]) -> None:
    from keras_tuner.src import utils
    from keras_tuner.src.engine import tuner_utils

    objective, executions = tuner.oracle.objective, range(tuner.executions_per_trial)
    files = [Path(tuner._get_checkpoint_fname(trial.trial_id)) for trial in trials]
    savers = [
        [tuner_utils.SaveBestEpoch(objective, str(file.with_name(f"{number}-{file.name}"))) for number in executions]
        for file in files
    ]
    listens = any(getattr(type(tuner), hook) is not getattr(_tuner_class(), hook) for hook in _HOOKS)
    points = [
        {"trial": trial, "execution": execution, "seed": int(np.random.randint(2**31 - 1))}
        for trial in range(len(trials))
        for execution in executions
    ]

    def build(trial: int, execution: int) -> Any:
        return _built(tuner, trials[trial])

    def callbacks_of(trial: int, execution: int) -> list[Any]:
        told = [tuner_utils.TunerCallback(tuner, trials[trial])] if listens else []
        return [*copy.deepcopy(callbacks), *told, savers[trial][execution]]

    many = fit_many(build, points, *args, callbacks=callbacks_of, **kwargs)
    models = iter(many.models)
    for trial, file, of_trial in zip(trials, files, savers, strict=True):
        trained = [next(models) for _ in executions]
        # From which an unbuilt model is built before its weights are loaded.
        utils.save_json(tuner._get_build_config_fname(trial.trial_id), trained[-1].get_build_config())
        _keep_best(of_trial, file, objective)
        histories = [model.history for model in trained]
        metrics = tuner_utils.convert_to_metrics_dict(histories, objective)
        step = tuner_utils.get_best_step(histories, objective)
        tuner.oracle.update_trial(trial.trial_id, metrics, step=step)


def _keep_best(savers: list[Any], file: Path, objective: Any) -> None:
    """Of the weights that the executions of a trial saved, have the best ones in its file."""
    best = savers[0]
    for saver in savers[1:]:
        if objective.better_than(saver.best_value, best.best_value):
            best = saver
    if Path(best.filepath).exists():
        # Not of a trial whose objective was never a number: it fails, and has no weights.
        Path(best.filepath).replace(file)
    for saver in savers:
        Path(saver.filepath).unlink(missing_ok=True)


def _tuner_class() -> Any:
    import keras_tuner

    return keras_tuner.Tuner
