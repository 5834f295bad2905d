"""A siamese network: do two samples have the same class? One encoder for both, and a contrastive loss."""

import random

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(73)
CLASSES = 6
centres = np.random.normal(size=(CLASSES, 20))


def samples(count):
    labels = np.random.randint(0, CLASSES, count)
    return (centres[labels] + np.random.normal(0, 0.8, (count, 20))).astype("float32"), labels


def make_pairs(x, labels):
    of_class = [np.flatnonzero(labels == one) for one in range(CLASSES)]
    first, second, same = [], [], []
    for index, label in enumerate(labels):
        other = random.choice([one for one in range(CLASSES) if one != label])
        for partner_class, is_other in ((label, 0), (other, 1)):
            first.append(x[index])
            second.append(x[random.choice(of_class[partner_class])])
            same.append(is_other)
    return np.array(first), np.array(second), np.array(same, "float32")[:, None]


def euclidean_distance(vectors):
    one, other = vectors
    return ops.sqrt(ops.maximum(ops.sum(ops.square(one - other), axis=1, keepdims=True), keras.config.epsilon()))


def contrastive(margin=1.0):
    def contrastive_loss(y_true, y_pred):
        return ops.mean((1 - y_true) * ops.square(y_pred) + y_true * ops.square(ops.maximum(margin - y_pred, 0)))

    return contrastive_loss


encoder = keras.Sequential([layers.BatchNormalization(), layers.Dense(32, activation="tanh"), layers.Dense(8)])
left, right = keras.Input((20,)), keras.Input((20,))
distance = layers.Lambda(euclidean_distance, output_shape=(1,))([encoder(left), encoder(right)])
outputs = layers.Dense(1, activation="sigmoid")(layers.BatchNormalization()(distance))
siamese = keras.Model([left, right], outputs)
siamese.compile(loss=contrastive(), optimizer="RMSprop", metrics=["accuracy"])

train_left, train_right, train_y = make_pairs(*samples(2_000))
test_left, test_right, test_y = make_pairs(*samples(300))
siamese.fit(
    [train_left, train_right],
    train_y,
    batch_size=32,
    epochs=4,
    validation_data=([test_left, test_right], test_y),
    verbose=2,
)
results = siamese.evaluate([test_left, test_right], test_y, verbose=0)
print("test loss, test acc:", results)
