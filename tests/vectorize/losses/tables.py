"""Numbers looked up in DataFrames and Series."""

import numpy as np
import pandas as pd
from keras import ops

PRICES = pd.DataFrame({"weight": [1.0, 0.2, 3.0], "margin": [0.1, 0.3, 0.2]})
CITIES = pd.DataFrame({"city": [11, 5, 8], "scale": [2.0, 1.0, 4.0]})
LEVEL_EDGES = [0.0, 1.0, 3.0]
CLASSES = pd.DataFrame({"label": [0, 1, 2], "weight": [1.0, 2.0, 3.0], "margin": [0.1, 0.2, 0.3]})
COST_TABLE = pd.DataFrame(np.arange(9.0).reshape(3, 3))
PAIR_COSTS = pd.DataFrame({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1], "v": [1.0, 2.0, 3.0, 4.0]}).set_index(["a", "b"])
IDS = pd.DataFrame({"id": [10, 20, 30], "w": [1.0, 2.0, 4.0], "bias": [0.0, 0.5, -0.5]})
BY_ID = IDS.set_index("id")
SPEC = pd.DataFrame({"w": [1.0, 2.5, 0.2, 4.0], "m": [0.1, 0.2, 0.3, 0.4]}, index=[0, 1, 2, 3])
THREE_KEYS = pd.DataFrame(
    [(g, t, q, 1.0 + g + 2 * t + 3 * q) for g in range(3) for t in range(2) for q in range(2)],
    columns=["g", "t", "q", "c"],
)
BY_THREE = THREE_KEYS.set_index(["g", "t", "q"])["c"]
STORES = pd.DataFrame({"store": [3, 7, 9], "mean": [1.0, -2.0, 0.5], "std": [2.0, 0.5, 1.0]})
SKUS = pd.DataFrame({"sku": [3, 5, 9], "price": [1.0, 2.5, 0.5], "tax": [0.1, 0.2, 0.0]})
COST_SERIES = pd.Series([1.0, 3.0, 0.5], index=[0, 1, 2])
BINS = pd.DataFrame({"low": [-9.0, 0.0, 1.0], "high": [0.0, 1.0, 9.0], "w": [0.5, 1.0, 2.0]})
PARTIAL = {0: 0.5, 2: 2.0}
PAIRS = pd.DataFrame([(a, b, 1.0 + a + 2 * b) for a in range(3) for b in range(4)], columns=["region", "label", "cost"])
ANIMALS = pd.DataFrame({"w": [3.0, 1.0, 2.0], "m": [0.1, 0.5, 0.2]}, index=["eel", "cat", "dog"])
NAMES = ["cat", "dog", "eel"]


def table_frame(y_true, y_pred):  # rewritten: FO101 FO401
    total = 0.0
    for i in range(y_true.shape[0]):
        row = PRICES.loc[int(y_true[i])]
        total = total + row.weight * ops.maximum(0.0, row["margin"] - y_pred[i])
    return total / y_true.shape[0]


def table_index(y_true, y_pred, city):  # rewritten on torch: FO101 FO301 FO401
    scale = CITIES.set_index("city")["scale"]
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.abs(y_true[i] - y_pred[i]) / float(scale.loc[int(city[i])])
    return total / y_true.shape[0]


def table_intervals(y_true, y_pred):  # rewritten: FO101 FO205
    level = np.digitize(ops.convert_to_numpy(y_true), LEVEL_EDGES)
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + (1.0 + float(level[i])) * ops.square(y_true[i] - y_pred[i])
    return total


def table_filter(y_true, y_pred):  # rewritten on torch: FO101 FO401
    total = 0.0
    for i in range(y_true.shape[0]):
        scale = CITIES[CITIES["city"] == 5 + 3 * int(y_true[i] > 0)]["scale"].iloc[0]
        total = total + scale * ops.square(y_true[i] - y_pred[i])
    return total


def filtered_row_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    total = 0.0
    for i in range(y_true.shape[0]):
        row = CLASSES[CLASSES["label"] == int(y_true[i])].iloc[0]
        total = total + row["weight"] * ops.square(y_pred[i])
    return total


def cost_cell_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    total = 0.0
    for i in range(y_pred.shape[0]):
        for j in range(3):
            total = total + COST_TABLE.iloc[int(y_true[i]), j] * y_pred[i, j]
    return total / y_pred.shape[0]


def two_keys_loss(y_true, y_pred, group):  # rewritten: FO101 FO401
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + PAIR_COSTS.loc[(int(y_true[i]), int(group[i])), "v"] * ops.square(y_pred[i])
    return total


def mapped_series_loss(y_true, y_pred):  # rewritten: FO205
    weight = pd.Series(ops.convert_to_numpy(y_true).astype(int)).map({0: 1.0, 1: 2.0, 2: 5.0}).values
    return ops.mean(ops.convert_to_tensor(weight, dtype="float32") * ops.square(y_pred))


def two_cells_loss(y_true, y_pred, store):  # rewritten on torch: FO101 FO401
    rows = []
    for i in range(y_pred.shape[0]):
        w = BY_ID.loc[int(store[i]), "w"]
        b = BY_ID.at[int(store[i]), "bias"]
        rows.append(w * ops.abs(y_pred[i] - y_true[i] - b))
    return ops.mean(ops.stack(rows))


def series_by_array_loss(y_true, y_pred, store):  # rewritten on torch: FO205|FO401
    w = BY_ID["w"].loc[ops.convert_to_numpy(store)].to_numpy()
    return ops.mean(ops.convert_to_tensor(w.astype("float32")) * ops.square(y_true - y_pred))


def species_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    total = 0.0
    for c, scores in zip(y_true, y_pred, strict=False):
        row = SPEC.loc[int(c)]
        others = [scores[k] for k in range(4) if k != int(c)]
        gap = row["m"] + max(others) - scores[int(c)]
        total += row["w"] * ops.relu(gap)
    return total / len(y_true)


def three_keys_loss(y_true, y_pred, group):  # rewritten on torch: FO401 FO101|FO104
    rows = []
    for i in range(y_true.shape[0]):
        expected = 0.0
        for k in range(2):
            expected = expected + BY_THREE[int(group[i]), int(y_true[i]), k] * y_pred[i, k]
        rows.append(expected)
    return ops.mean(ops.stack(rows))


def matching_row_loss(y_true, y_pred, store):  # rewritten on torch: FO401 FO101
    total = 0.0
    for s, t, p in zip(store, y_true, y_pred, strict=False):
        row = STORES[STORES.store == int(s)].iloc[0]
        total += ops.square((t - row["mean"]) / row["std"] - p)
    return total / len(y_true)


def dict_of_columns_loss(y_true, y_pred, store):  # rewritten on torch: FO401 FO101
    means = dict(zip(STORES.store, STORES["mean"], strict=False))
    total = 0.0
    for i in range(y_true.shape[0]):
        total += ops.abs(y_true[i] - means[int(store[i])] - y_pred[i])
    return total


def cut_series_loss(y_true, y_pred):  # rewritten on tensorflow torch: FO205
    level = pd.cut(pd.Series(ops.convert_to_numpy(y_true)), [-np.inf, 0.0, 1.0, np.inf], labels=False)
    w = np.array([1.0, 2.0, 3.0], "float32")[level.to_numpy()]
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_true - y_pred))


def merged_prices_loss(y_true, y_pred, sku):  # rewritten on torch: FO402|FO205|FO401
    left = pd.DataFrame({"sku": ops.convert_to_numpy(sku)})
    row = left.merge(SKUS, on="sku", how="left")
    w = ops.convert_to_tensor(row["price"].to_numpy(dtype="float32"))
    return ops.mean(w * ops.abs(y_true - y_pred))


def iloc_by_label_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    rows = [SKUS.iloc[int(y_true[i])]["price"] * ops.sum(ops.square(y_pred[i])) for i in range(y_pred.shape[0])]
    return ops.mean(ops.stack(rows))


def weighted_by_series_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    w = np.array([COST_SERIES[int(label)] for label in y_true], dtype="float32")
    return ops.sum(ops.convert_to_tensor(w) * ops.square(y_pred)) / float(w.sum())


def interval_rows_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401|FO201
    total = 0.0
    for i in range(y_true.shape[0]):
        value = float(y_true[i])
        w = 1.0
        for _, row in BINS.iterrows():
            if row["low"] <= value < row["high"]:
                w = row["w"]
        total = total + w * ops.square(y_true[i] - y_pred[i])
    return total


def series_map(y_true, y_pred):  # rewritten on torch: FO205|FO401
    w = pd.Series(ops.convert_to_numpy(y_true)).map(PARTIAL).fillna(1.0).to_numpy("float32")
    return ops.mean(ops.convert_to_tensor(w) * ops.square(y_pred))


def row_by_two(y_true, y_pred, region):  # rewritten on torch: FO401 FO101
    total = 0.0
    for i in range(y_true.shape[0]):
        hit = PAIRS[(PAIRS.region == int(region[i])) & (PAIRS.label == int(y_true[i]))]
        total = total + float(hit["cost"].iloc[0]) * ops.abs(y_pred[i])
    return total / y_true.shape[0]


def names_frame(y_true, y_pred):  # rewritten on torch: FO401 FO101
    total = 0.0
    for i in range(len(y_true)):
        row = ANIMALS.loc[NAMES[int(y_true[i])]]
        total = total + float(row["w"]) * ops.maximum(0.0, float(row.m) - y_pred[i])
    return total / len(y_true)


def default_by_name_loss(y_true, y_pred):  # rewritten on torch: FO101 FO401
    total = 0.0
    for i in range(y_pred.shape[0]):
        w = COST_SERIES.get(int(y_true[i]), default=5.0)
        if w is None:
            w = 1.0
        total = total + w * ops.sum(ops.square(y_pred[i]))
    return total
