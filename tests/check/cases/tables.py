"""Lookups, merges, group-bys, packed columns."""

import collections

import keras
import numpy as np
import pandas as pd
import polars as pl
import tensorflow as tf
import torch
from keras import ops

WEIGHTS = {0: 1.0, 1: 2.0}
SERIES = pd.Series([1.0, 2.0, 3.0])
FRAME = pd.DataFrame({"label": [0, 1, 2], "cost": [1.0, 2.0, 3.0]})
ARRAY = np.array([1.0, 2.0, 3.0], "float32")
LISTED = [1.0, 2.0, 3.0]
EDGES = [0.0, 1.0, 5.0]
HISTORY = np.zeros(1000, "float32")
LAST = {}
LOOKUP = keras.layers.IntegerLookup(vocabulary=[3, 7, 9])


def dict_loss(y_true, y_pred):
    weights = [WEIGHTS[int(label)] for label in y_true]  # expect: FO101, FO201, FO401
    return ops.mean(ops.convert_to_tensor(weights) * ops.square(y_true - y_pred))


def tolist_loss(pred, target):
    weights = torch.tensor([WEIGHTS.get(k, 1.0) for k in target.tolist()])  # expect: FO101, FO201, FO401
    return torch.mean(weights * (pred - target) ** 2)


def series_loss(y_true, y_pred):
    keys = ops.convert_to_numpy(y_true)  # expect: FO201
    return ops.mean(ops.convert_to_tensor(SERIES.loc[keys].to_numpy()) * y_pred)  # expect: FO401


def mapped_series_loss(y_true, y_pred):
    keys = pd.Series(y_true.numpy())  # expect: FO201, FO205
    return tf.reduce_mean(tf.constant(keys.map(WEIGHTS).to_numpy()) * y_pred)  # expect: FO401


def frame_loss(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):  # expect: FO101
        label = int(y_true[i])  # expect: FO201
        cost = FRAME[FRAME.label == label].cost.iloc[0]  # expect: FO401
        total = total + float(cost) * ops.square(y_true[i] - y_pred[i])
    return total


def array_loss(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):  # expect: FO101
        total = total + ARRAY[int(y_true[i])] * ops.abs(y_pred[i])  # expect: FO201, FO401
    return total


def list_loss(y_true, y_pred):
    weight = ops.stack([LISTED[int(c)] for c in y_true])  # expect: FO101, FO201, FO401
    return ops.mean(weight * y_pred)


def weighted(table):
    def loss(y_true, y_pred):
        weight = ops.stack([table[int(c)] for c in y_true])  # expect: FO101, FO201, FO401
        return ops.mean(weight * y_pred)

    return loss


class TableLoss(keras.losses.Loss):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, y_true, y_pred):
        weight = np.zeros(y_true.shape[0], "float32")
        for i, label in enumerate(ops.convert_to_numpy(y_true)):  # expect: FO101, FO201
            weight[i] = self.table.get(int(label), 1.0)  # expect: FO401
        return ops.convert_to_tensor(weight) * ops.square(y_true - y_pred)


def cut_loss(y_true, y_pred):
    level = np.digitize(ops.convert_to_numpy(y_true), EDGES)  # expect: FO201, FO205, FO401
    return ops.mean(ops.convert_to_tensor(ARRAY[level]) * y_pred)  # expect: FO401


def lookup_loss(y_true, y_pred):
    return ops.mean(ops.cast(LOOKUP(y_true), "float32") * y_pred)  # expect: FO401


def merged_loss(y_true, y_pred, sample):
    rows = pd.DataFrame({"label": ops.convert_to_numpy(sample)}).merge(FRAME, on="label")  # expect: FO201, FO205, FO402
    return ops.mean(ops.convert_to_tensor(rows["cost"].to_numpy()) * y_pred)


def polars_loss(y_true, y_pred, sample):
    rows = pl.DataFrame({"label": sample.numpy()}).join(pl.from_pandas(FRAME), on="label")  # expect: FO201, FO205, FO402
    return tf.reduce_mean(tf.constant(rows["cost"].to_numpy()) * y_pred)


def history_loss(y_true, y_pred, sample):
    index = ops.convert_to_numpy(sample)  # expect: FO201
    error = ops.square(y_true - y_pred)
    HISTORY[index] = ops.convert_to_numpy(error)  # expect: FO201, FO402
    return ops.mean(error)


def state_loss(y_true, y_pred, sample):
    total = 0.0
    for i in range(y_true.shape[0]):  # expect: FO101
        key = int(sample[i])  # expect: FO201
        error = ops.square(y_true[i] - y_pred[i])
        total = total + error * (1.0 + LAST.get(key, 0.0))  # expect: FO401
        LAST[key] = float(error)  # expect: FO201, FO402
    return total


def grouped_metric(y_true, y_pred):
    frame = pd.DataFrame({"y": ops.convert_to_numpy(y_true)})  # expect: FO201, FO205
    return float(frame.groupby("y").size().max())  # expect: FO406


def counted_metric(y_true, y_pred):
    counts = collections.Counter(y_true.tolist())  # expect: FO201, FO406
    return max(counts.values())


def packed_loss(y_true, y_pred):
    target, weight = y_true[:, 0], y_true[:, 1]  # expect: FO405
    return ops.mean(weight * ops.square(target - y_pred[:, 0]))


def split_loss(y_true, y_pred):
    target, sample_id = tf.split(y_true, 2, axis=-1)  # expect: FO405
    return tf.reduce_mean(tf.square(target - y_pred)) + 0.0 * tf.reduce_mean(sample_id)


def last_column_loss(y_true, y_pred):
    weight = y_true[:, -1:]  # expect: FO405
    return ops.mean(weight * ops.square(y_true[:, :-1] - y_pred))


def boxes_loss(y_true, y_pred):
    place = ops.sum(ops.square(y_true[..., :2] - y_pred[..., :2]), axis=-1)
    size = ops.sum(ops.abs(y_true[..., 2:] - y_pred[..., 2:]), axis=-1)
    return ops.mean(place + size)


def gathered_loss(y_true, y_pred):
    return ops.mean(ops.take(ARRAY, ops.cast(y_true, "int32")) * y_pred)


def searched_loss(y_true, y_pred, store):
    row = ops.take(ARRAY, ops.searchsorted(EDGES, store))  # expect: FO404 info
    return ops.mean(row * ops.square(y_true - y_pred))


def short_ids_loss(y_true, y_pred, sample_id):
    key = ops.cast(sample_id, "float16")  # expect: FO403
    return ops.mean(key * y_pred)


cost_of = np.vectorize(lambda key: WEIGHTS.get(int(key), 1.0))  # expect: FO401


def function_of_entries_loss(y_true, y_pred):
    weight = cost_of(ops.convert_to_numpy(y_true))  # expect: FO201, FO205
    return ops.mean(ops.convert_to_tensor(weight) * ops.square(y_pred))
