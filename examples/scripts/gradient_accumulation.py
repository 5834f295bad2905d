"""A schedule of our own (warm-up, then the inverse root), gradients accumulated over four small batches, clipped."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(197)


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, width, warm_up=60):
        self.width, self.warm_up = width, warm_up

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        return 0.1 * ops.rsqrt(float(self.width)) * ops.minimum(ops.rsqrt(step), step * self.warm_up**-1.5)

    def get_config(self):
        return {"width": self.width, "warm_up": self.warm_up}


x = np.random.randint(0, 30, (3_200, 12))
y = (x.sum(axis=1) % 2).astype("float32") * (x[:, 0] > 5)

inputs = keras.Input((12,), dtype="int32")
embedded = layers.Embedding(30, 16)(inputs)
hidden = layers.Dense(32, activation="relu")(layers.Flatten()(embedded))
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(hidden))
optimizer = keras.optimizers.Adam(
    WarmUp(16), beta_2=0.98, epsilon=1e-9, gradient_accumulation_steps=4, global_clipnorm=1.0
)
model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=16, epochs=3, validation_split=0.1, verbose=2)
schedule = WarmUp(16)
print("Rates:", [round(float(ops.convert_to_numpy(schedule(step))), 6) for step in (0, 30, 60, 500)])
print("Iterations:", int(ops.convert_to_numpy(optimizer.iterations)))
