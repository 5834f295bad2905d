"""How losses, metrics and their parameters are called, and what is called alike but is none of them."""

from __future__ import annotations

import re

TRUE_NAMES = frozenset({
    "actual", "actuals", "expected", "ground_truth", "groundtruth", "gt", "label", "labels", "observed", "real",
    "reference", "t", "target", "targets", "tgt", "true", "true_y", "trues", "truth", "truths", "y", "y_actual",
    "y_real", "y_t", "y_target", "y_true", "y_trues", "y_truth", "yt", "ytrue",
})  # fmt: skip
PRED_NAMES = frozenset({
    "embeddings", "estimate", "estimates", "forecast", "guess", "logit", "logits", "model_output", "out", "output",
    "outputs", "p", "pred", "pred_y", "predicted", "prediction", "predictions", "preds", "prob", "probs", "scores",
    "y_hat", "y_logits", "y_out", "y_p", "y_pred", "y_prediction", "y_preds", "y_prob", "y_score", "yhat", "yp",
    "ypred",
})  # fmt: skip
NO_TENSORS = frozenset({
    "alpha", "args", "ax", "beta", "cfg", "cls", "config", "data", "dataset", "df", "epoch", "epochs", "fig",
    "filename", "frame", "gamma", "history", "kwargs", "loader", "logs", "loss", "losses", "message", "model",
    "name", "num_classes", "optimizer", "options", "params", "path", "reduction", "self", "text", "title",
    "weights",
})  # fmt: skip
# What comes before the batch in the steps of a training loop that users write themselves, and what counts there.
NETWORKS = frozenset({"model", "net", "network", "params", "parameters", "state", "variables", "weights"})
COUNTERS = frozenset({"batch_idx", "batch_index", "epoch", "i", "idx", "index", "iteration", "j", "step"})
EXTRAS = frozenset({
    "count", "counts", "group", "groups", "inputs", "length", "lengths", "mask", "masks", "sample_weight",
    "weight_mask", "weights", "x",
})  # fmt: skip
LOSS_END = re.compile(
    r"(loss|criterion|objective|penalty|nll|crossentropy|cross_entropy|divergence)(_?fn|_?func|_?function|_?\d+)?$",
    re.IGNORECASE,
)
LOSS_START = re.compile(r"^(loss|custom_loss|my_loss)", re.IGNORECASE)
METRIC = re.compile(
    r"(metric|accuracy|precision|recall|f1|auc|iou|dice|coef|coefficient|score|error|distance|mae|mse|rmse|mape|r2|overlap|rate)",
    re.IGNORECASE,
)
NO_ROOT = re.compile(
    r"^(plot|show|print|report|display|save|load|read|write|get|make|build|create|draw|summari[sz]e|visuali[sz]e|test|main"
    r"|train|fit|evaluate|compile|export|run)(_|$)",
    re.IGNORECASE,
)
ANNOTATED = re.compile(r"\b(str|int|float|bool|dict|list|Path|Callable|DataFrame|Sequence|Iterable)\b")
TENSOR_LIBRARIES = frozenset({"F", "K", "backend", "jax", "jnp", "keras", "nn", "ops", "tf", "th", "torch"})
BATCH_HOOKS = re.compile(r"^on_(train_|test_|predict_)?batch_(begin|end)$")
EPOCH_HOOKS = re.compile(r"^on_(epoch|train|test|predict)_(begin|end)$")


def named_as_loss(names: list[str]) -> bool:
    """Whether the first two parameters are called like targets and outputs, in either order."""
    first, second = names[:2]
    return (first in TRUE_NAMES and second in PRED_NAMES) or (first in PRED_NAMES and second in TRUE_NAMES)
