"""Node classification in a graph of citations: a layer that looks up neighbours, a mask for the labels we have."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(227)
NODES, CLASSES = 800, 4
groups = np.random.randint(0, CLASSES, NODES)
linked = np.random.rand(NODES, NODES) < np.where(groups[:, None] == groups[None], 0.02, 0.001)
adjacency = (linked | linked.T | np.eye(NODES, dtype=bool)).astype("float32")
adjacency /= adjacency.sum(axis=1, keepdims=True)
features = (np.random.normal(size=(NODES, 12)) + 0.5 * np.eye(CLASSES, 12)[groups]).astype("float32")


class NeighbourMean(layers.Layer):
    """What a node's neighbours say, of all nodes' features."""

    def __init__(self, adjacency, features, **options):
        super().__init__(**options)
        self.adjacency = ops.convert_to_tensor(adjacency)
        self.features = ops.convert_to_tensor(features)
        self.own, self.theirs = layers.Dense(24), layers.Dense(24)

    def call(self, nodes):
        rows = ops.take(self.adjacency, nodes, axis=0)
        return ops.relu(self.own(ops.take(self.features, nodes, axis=0)) + self.theirs(ops.matmul(rows, self.features)))


class GraphNetwork(keras.Model):
    def __init__(self):
        super().__init__()
        self.neighbours = NeighbourMean(adjacency, features)
        self.dropout = layers.Dropout(0.4)
        self.head = layers.Dense(CLASSES)

    def call(self, nodes, training=False):
        return self.head(self.dropout(self.neighbours(nodes), training=training))


nodes = np.random.permutation(NODES)
train, test = nodes[:600], nodes[600:]
model = GraphNetwork()
model.compile(
    keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["acc"]
)
history = model.fit(train, groups[train], batch_size=16, epochs=8, validation_data=(test, groups[test]), verbose=2)
_, accuracy = model.evaluate(test, groups[test], verbose=0)
print(f"Test accuracy: {accuracy:.3f}, best {max(history.history['val_acc']):.3f}")
