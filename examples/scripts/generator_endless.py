"""Python generators that never end, with `steps_per_epoch`: where does a bouncing ball go next?"""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(137)


def trajectories(batch_size, seed):
    random = np.random.default_rng(seed)
    while True:
        place = random.uniform(0, 1, (batch_size, 2))
        speed = random.uniform(-0.1, 0.1, (batch_size, 2))
        path = []
        for _ in range(9):
            path.append(place)
            place = place + speed
            outside = (place < 0) | (place > 1)
            speed = np.where(outside, -speed, speed)
            place = np.clip(place, 0, 1)
        path = np.stack(path, axis=1).astype("float32")
        yield path[:, :8], path[:, 8]


model = keras.Sequential([keras.Input((8, 2)), layers.GRU(24), layers.Dense(2)])
model.compile(keras.optimizers.Adam(5e-3), loss="mse", metrics=["mae"])
history = model.fit(
    trajectories(32, seed=0),
    steps_per_epoch=80,
    epochs=4,
    validation_data=next(trajectories(320, seed=1)),
    verbose=2,
)
print("Mean errors:", [round(value, 4) for value in history.history["val_mae"]])
inputs, targets = next(trajectories(2, seed=2))
for guess, target in zip(model.predict(inputs, verbose=0), targets, strict=True):
    print("predicted", np.round(guess, 3).tolist(), "was", np.round(target, 3).tolist())
