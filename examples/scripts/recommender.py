"""Collaborative filtering: who likes which film? A subclassed model with embeddings and biases."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(59)
USERS, FILMS, RATINGS = 300, 200, 12_000
taste, style = np.random.normal(size=(USERS, 4)), np.random.normal(size=(FILMS, 4))
pairs = np.stack([np.random.randint(0, USERS, RATINGS), np.random.randint(0, FILMS, RATINGS)], axis=1)
scores = np.sum(taste[pairs[:, 0]] * style[pairs[:, 1]], axis=1)
ratings = (1 / (1 + np.exp(-scores))).astype("float32")


@keras.saving.register_keras_serializable()
class RecommenderNet(keras.Model):
    def __init__(self, users, films, width, **options):
        super().__init__(**options)
        regularizer = keras.regularizers.l2(1e-6)
        self.user = layers.Embedding(
            users, width, embeddings_initializer="he_normal", embeddings_regularizer=regularizer
        )
        self.user_bias = layers.Embedding(users, 1)
        self.film = layers.Embedding(
            films, width, embeddings_initializer="he_normal", embeddings_regularizer=regularizer
        )
        self.film_bias = layers.Embedding(films, 1)

    def call(self, inputs):
        user, film = inputs[:, 0], inputs[:, 1]
        match = ops.sum(self.user(user) * self.film(film), axis=1, keepdims=True)
        return ops.nn.sigmoid(match + self.user_bias(user) + self.film_bias(film))


model = RecommenderNet(USERS, FILMS, 8)
model.compile(loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.Adam(0.01))
model.fit(
    pairs[:10_000],
    ratings[:10_000],
    batch_size=64,
    epochs=4,
    validation_data=(pairs[10_000:], ratings[10_000:]),
    verbose=2,
)

user = 7
candidates = np.stack([np.full(FILMS, user), np.arange(FILMS)], axis=1)
predicted = model.predict(candidates, verbose=0)[:, 0]
print(f"Films for user {user}:", np.argsort(-predicted, kind="stable")[:5].tolist())
print("Weights:", sum(int(np.prod(weight.shape)) for weight in model.trainable_weights))
