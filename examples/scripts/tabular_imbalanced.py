"""Credit card fraud: imbalanced classes, class weights, counts of right and wrong as metrics."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(41)
rows, features = 8_000, 12
y = (np.random.rand(rows, 1) < 0.03).astype("uint8")
x = np.random.normal(size=(rows, features)).astype("float32") + y * np.random.normal(0.8, 0.3, features)
x = x.astype("float32")
x_train, x_val, y_train, y_val = x[:6_400], x[6_400:], y[:6_400], y[6_400:]

counts = np.bincount(y_train[:, 0])
print(f"Positive samples in training data: {counts[1]} ({100 * counts[1] / len(y_train):.2f}% of total)")
class_weight = {0: 1.0 / counts[0], 1: 1.0 / counts[1]}

mean, deviation = x_train.mean(axis=0), x_train.std(axis=0)
x_train, x_val = (x_train - mean) / deviation, (x_val - mean) / deviation

model = keras.Sequential(
    [
        keras.Input((features,)),
        layers.Dense(64, activation="relu"),
        layers.Dense(64, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss="binary_crossentropy",
    metrics=[
        keras.metrics.FalseNegatives(name="fn"),
        keras.metrics.FalsePositives(name="fp"),
        keras.metrics.TruePositives(name="tp"),
        keras.metrics.Precision(name="precision"),
        keras.metrics.Recall(name="recall"),
        keras.metrics.AUC(name="prc", curve="PR"),
    ],
)
model.fit(
    x_train,
    y_train,
    batch_size=64,
    epochs=5,
    verbose=2,
    validation_data=(x_val, y_val),
    class_weight=class_weight,
    callbacks=[keras.callbacks.ModelCheckpoint("fraud_{epoch}.keras")],
)
best = keras.models.load_model("fraud_3.keras")
print(
    "After epoch 3:",
    {name: round(value, 5) for name, value in best.evaluate(x_val, y_val, verbose=0, return_dict=True).items()},
)
