"""A functional model, a validation split and early stopping: predict how hard a concrete will be.

python functional_early_stopping.py
python -m flatout functional_early_stopping.py
"""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(42)

# Eight ingredients and the age of the concrete; made up here, so that the script needs no download.
rng = np.random.default_rng(42)
ingredients = rng.uniform(0, 1, (4_000, 8)).astype("float32")
age = rng.uniform(1, 365, (4_000, 1)).astype("float32")
strength = 30 * ingredients[:, :1] * np.log(age) - 10 * ingredients[:, 1:2] ** 2 + rng.normal(0, 2, (4_000, 1))

mix_input = keras.Input((8,), name="ingredients")
age_input = keras.Input((1,), name="age")
normalized_age = layers.Rescaling(1 / 365)(age_input)
hidden = layers.Concatenate()([mix_input, normalized_age])
hidden = layers.Dense(64, activation="relu")(hidden)
hidden = layers.Dropout(0.1)(hidden)
hidden = layers.Dense(64, activation="relu")(hidden)
model = keras.Model([mix_input, age_input], layers.Dense(1)(hidden))
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])

history = model.fit(
    [ingredients, age],
    strength,
    batch_size=32,
    epochs=30,
    validation_split=0.2,
    callbacks=[keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True)],
    verbose=2,
)

print(f"stopped after {len(history.history['loss'])} epochs")
print("best validation MAE: {:.4f}".format(min(history.history["val_mae"])))
loss, mae = model.evaluate([ingredients, age], strength, verbose=0)
print(f"all rows: loss {loss:.4f}, MAE {mae:.4f}")
print("first predictions:", model.predict([ingredients[:3], age[:3]], verbose=0).ravel().round(3))
