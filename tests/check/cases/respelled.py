"""The same habits once more, as other people write them."""
import itertools, logging, os, random, sys, math, bisect
import functools
import collections
import keras
import keras.backend as K
import numpy as np
import pandas as pd
import tensorflow as tf
import torch
import jax
import jax.numpy as jnp
from keras import ops
from sklearn.metrics import roc_auc_score, f1_score
from pathlib import Path

LOG = logging.getLogger("t")
HOUSE = pd.Series([0, 1, 2, 1])
CW = {0: 2.0, 2: 0.5}
DF = pd.DataFrame({"name": ["a", "b"], "weight": [1.0, 2.0], "margin": [0.1, 0.2]})
PAIR = np.ones((3, 3), "float32")
COSTS = {(0, 0): 1.0, (0, 1): 2.0}
QS = [0.1, 0.5, 0.9]

# A1 tf.TensorArray + tf.range
@tf.function
def batch_loss(y_true, y_pred):
    acc = tf.TensorArray(tf.float32, size=tf.shape(y_true)[0])
    for i in tf.range(tf.shape(y_true)[0]):  # expect: FO101
        acc = acc.write(i, tf.reduce_mean(tf.square(y_true[i] - y_pred[i])))
    return tf.reduce_mean(acc.stack())

# A3 torch
def seq_loss(pred, target, length):
    out = []
    for b in range(pred.shape[0]):  # expect: FO101
        n = length[b].item()  # expect: FO201
        out.append((pred[b, :n] - target[b, :n]).abs().mean())  # expect: FO108, FO108
    return torch.stack(out).mean()

# A3 with dynamic tensor slice (no host read)
def tensor_slice_loss(y_true, y_pred, length):
    rows = [ops.mean(ops.abs(y_true[i, : length[i]] - y_pred[i, : length[i]])) for i in range(y_true.shape[0])]  # expect: FO101, FO108, FO108
    return ops.mean(ops.stack(rows))

# A4 while + enumerate over transposed
def frames_loss(y_true, y_pred):
    total = 0.0
    for a, b in zip(ops.unstack(y_true, axis=1), ops.unstack(y_pred, axis=1)):  # expect: FO102
        total += ops.mean(ops.norm(a - b, axis=-1))
    return total

def moved_loss(y_true, y_pred):
    t, p = tf.transpose(y_true, [1, 0, 2]), tf.transpose(y_pred, [1, 0, 2])
    return tf.add_n([tf.reduce_mean(tf.abs(t[k] - p[k])) for k in range(t.shape[0])])  # expect: FO104

# A9 metric
def runs_metric(y_true, y_pred):
    diffs = []
    for a, b in zip(y_true.numpy(), y_pred.numpy()):  # expect: FO101, FO201, FO201
        runs = 1
        for k in range(1, len(a)):  # expect: FO104
            if a[k] != a[k - 1]:  # expect: FO202
                runs += 1
        diffs.append(abs(runs - len(set(b))))
    return tf.constant(np.mean(diffs))

# B1 torch combos
def pairs_loss(emb, label):
    loss = 0
    for (i, a), (j, b) in itertools.combinations(enumerate(emb), 2):  # expect: FO103
        d = (a - b).pow(2).sum().sqrt()
        loss = loss + (d if HOUSE[int(label[i])] == HOUSE[int(label[j])] else -d)  # expect: FO201, FO201, FO202, FO401, FO401
    return loss

# B4
def rank_loss(y_true, y_pred):
    out = 0.0
    for row, score in zip(y_true, y_pred):  # expect: FO101
        pos = [s for t, s in zip(row, score) if t == 1]  # expect: FO102, FO108
        neg = [s for t, s in zip(row, score) if t == 0]  # expect: FO102, FO108
        out = out + sum(ops.maximum(0.0, 1 - p + n) for p in pos for n in neg)  # expect: FO103
    return out

# C1
def dice_loss(y_true, y_pred):
    n = y_true.max().item() + 1  # expect: FO201
    return sum(1 - 2 * ((y_true == c) * y_pred[..., c]).sum() / (y_pred[..., c].sum() + 1e-6) for c in range(n))  # expect: FO104

# C3
def cost_loss(y_true, y_pred):
    final = K.zeros_like(y_pred[:, 0])
    mx = K.reshape(K.max(y_pred, axis=1), (K.shape(y_pred)[0], 1))
    hit = K.cast(K.equal(y_pred, mx), "float32")
    for c_p, c_t in itertools.product(range(len(PAIR)), range(len(PAIR))):  # expect: FO104
        final += PAIR[c_t, c_p] * hit[:, c_p] * y_true[:, c_t]
    return K.categorical_crossentropy(y_true, y_pred) * final

# C5
def cw_loss(y_true, y_pred):
    w = tf.constant(list(map(lambda c: CW.get(int(c), 1.0), y_true)))  # expect: FO101, FO201, FO401
    return tf.reduce_mean(w * keras.losses.sparse_categorical_crossentropy(y_true, y_pred))

# D2
def worst_loss(y_true, y_pred):
    err = (y_true - y_pred) ** 2
    host = sorted(err.tolist())  # expect: FO201
    thr = host[-max(1, len(host) // 3)]
    return torch.stack([e for e in err if e.item() >= thr]).mean()  # expect: FO101, FO108, FO201

# D4
def dtw_loss(y_true, y_pred):
    total = 0.0
    n, m = ops.shape(y_true)[1], ops.shape(y_pred)[1]
    for b in range(ops.shape(y_true)[0]):  # expect: FO101
        R = np.full((n + 1, m + 1), np.inf).tolist()
        R[0][0] = 0.0
        for i in range(1, n + 1):  # expect: FO102, FO106
            for j in range(1, m + 1):  # expect: FO102, FO106
                R[i][j] = ops.square(y_true[b, i - 1] - y_pred[b, j - 1]) + ops.min(ops.stack([R[i - 1][j], R[i][j - 1], R[i - 1][j - 1]]))
        total = total + R[n][m]
    return total

# viterbi
def viterbi_loss(y_true, y_pred):
    alpha = y_pred[:, 0]
    for t in range(1, y_pred.shape[1]):  # expect: FO102, FO106
        alpha = ops.logsumexp(alpha[:, :, None] + y_pred[:, t][:, None, :], axis=1)
    return ops.mean(alpha)

# E1
def verbose_loss(y_true, y_pred):
    e = ops.mean(ops.abs(y_true - y_pred))
    sys.stdout.write(str(e.item()))  # expect: FO201, FO203
    return e

# E4
class AUC(keras.metrics.Metric):
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value = roc_auc_score(y_true.cpu().numpy(), y_pred.detach().cpu().numpy())  # expect: FO201, FO201, FO205
    def result(self):
        return self.value

# F1
class FileLoss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        table = pd.read_parquet(Path("w.parquet"))  # expect: FO206, FO301
        return ops.mean(ops.convert_to_tensor(table["w"].to_numpy()) * ops.square(y_true - y_pred), axis=-1)

# G3
def tuple_key_loss(y_true, y_pred, group):
    rows = []
    for t, p, g in zip(y_true, y_pred, group):  # expect: FO101
        rows.append(COSTS[int(g), int(t)] * p)  # expect: FO201, FO201, FO401
    return ops.mean(ops.stack(rows))

# G1 itertuples / query
def query_loss(y_true, y_pred):
    total = 0.0
    for i in range(len(y_true)):  # expect: FO101
        row = DF.query(f"name == {int(y_true[i])}").iloc[0]  # expect: FO201, FO401
        total = total + row.weight * ops.abs(y_pred[i])
    return total

def at_loss(y_true, y_pred):
    w = [DF.at[int(k), "weight"] for k in y_true]  # expect: FO101, FO201, FO401
    return ops.mean(ops.array(w) * y_pred)

# G7
def bisect_loss(y_true, y_pred):
    w = [PAIR[bisect.bisect_right(QS, float(v)), 0] for v in y_true]  # expect: FO101, FO201, FO401, FO401
    return ops.mean(ops.array(w) * y_pred)

# H2
def pin_loss(y_true, y_pred):
    losses = []
    for i, q in enumerate(QS):  # expect: FO104 info
        e = y_true[:, 0] - y_pred[:, i]
        neg = e[e < 0]  # expect: FO108
        losses.append(q * torch.sum(e) - torch.sum(neg))
    return sum(losses)

# H4
def listmle_loss(y_true, y_pred):
    total = 0.0
    for rel, s in zip(y_true, y_pred):  # expect: FO101
        order = np.argsort(-rel.numpy())  # expect: FO201, FO205, FO307 info
        s = tf.gather(s, order)
        for i in range(s.shape[0]):  # expect: FO102
            total += tf.reduce_logsumexp(s[i:]) - s[i]
    return total

# X5
class StepLoss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        step = self.add_weight(name="s")  # expect: FO302
        return step * ops.mean(ops.square(y_true - y_pred), axis=-1)

# X7
class Memory(keras.losses.Loss):
    def __init__(self):
        super().__init__()
        self.last = {}
    def call(self, y_true, y_pred):
        out = []
        for i in range(y_true.shape[0]):  # expect: FO101
            key = int(y_true[i, 1])  # expect: FO201, FO405
            e = ops.square(y_true[i, 0] - y_pred[i, 0])
            out.append(e * self.last.get(key, 1.0))  # expect: FO401
            self.last[key] = float(e)  # expect: FO201, FO402
        return ops.stack(out)

# X9 torch train_step
class TorchStep(keras.Model):
    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = 0
        for i in range(len(x)):  # expect: FO101
            loss = loss + torch.mean((self(x[i : i + 1]) - y[i]) ** 2)
        loss.backward()
        if loss.item() > 100:  # expect: FO201, FO202
            print("large")  # expect: FO203
        grads = [v.value.grad for v in self.trainable_weights]
        with torch.no_grad():
            self.optimizer.apply(grads, self.trainable_weights)
        return {"loss": loss}

# X15
def packed(y_true, y_pred):
    return ops.mean(ops.square(y_true[..., 0] - y_pred[..., 0]) * y_true[..., 1])  # expect: FO405

model = keras.Sequential([keras.layers.Dense(1)])
model.compile(loss=packed, metrics=["mae"])

# N cases
def ar_loss(y_true, y_pred):
    h = K.zeros_like(y_pred[:, 0])
    out = 0.0
    for x in tf.unstack(y_pred, axis=1):  # expect: FO102, FO106
        h = K.tanh(h * 0.5 + x)
        out += K.mean(h)
    return out

def dropout_loss(y_true, y_pred):
    return ops.mean(ops.stack([ops.mean(keras.random.dropout(p, 0.5) - t) for t, p in zip(y_true, y_pred)]))  # expect: FO101

def jnp_where_loss(y_true, y_pred):
    d = jnp.linalg.norm(y_pred[:, None] - y_pred[None], axis=-1)  # expect: FO502
    return jnp.mean(d)

def list_outputs_loss(y_true, y_pred):
    out = 0.0
    for w, head in zip((1.0, 0.5), y_pred):
        out += w * ops.mean(ops.square(y_true - head))
    return out
