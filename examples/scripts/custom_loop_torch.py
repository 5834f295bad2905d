"""A training loop from scratch in PyTorch, over a DataLoader; then the same model goes on with `fit`."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
from keras import layers

keras.utils.set_random_seed(103)
x = np.random.normal(size=(2_400, 16)).astype("float32")
y = (np.sum(x[:, :4] * x[:, 4:8], axis=1) > 0).astype("float32")[:, None]
dataset = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
loader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0))

model = keras.Sequential([keras.Input((16,)), layers.Dense(64, activation="relu"), layers.Dense(1)])
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = torch.nn.BCEWithLogitsLoss()
accuracy = keras.metrics.BinaryAccuracy(threshold=0.0)

for epoch in range(4):
    for inputs, targets in loader:
        logits = model(inputs)
        loss = loss_fn(logits, targets)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        accuracy.update_state(targets, logits)
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.4f}, accuracy {float(accuracy.result()):.4f}")
    accuracy.reset_state()

print("The same with fit:")
model.compile(keras.optimizers.Adam(1e-3), keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(loader, epochs=5, verbose=2)
