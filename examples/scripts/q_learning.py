"""Deep Q-learning in a corridor: many short fits and predictions, as courses on reinforcement learning do it."""

import random
from collections import deque

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(223)
LENGTH, GOAL = 8, 7


def observe(place):
    return np.eye(LENGTH, dtype="float32")[place]


def move(place, action):
    place = min(max(place + (1 if action else -1), 0), LENGTH - 1)
    return place, (1.0 if place == GOAL else -0.05), place == GOAL


model = keras.Sequential([keras.Input((LENGTH,)), layers.Dense(16, activation="relu"), layers.Dense(2)])
model.compile(keras.optimizers.Adam(2e-2), loss="mse")
memory = deque(maxlen=500)
epsilon = 1.0
for episode in range(10):
    place, total = 0, 0.0
    for step in range(20):
        if random.random() < epsilon:
            action = random.randint(0, 1)
        else:
            action = int(np.argmax(model.predict(observe(place)[None], verbose=0)[0]))
        after, reward, done = move(place, action)
        memory.append((place, action, reward, after, done))
        place, total = after, total + reward
        if len(memory) >= 32 and step % 4 == 0:
            batch = random.sample(list(memory), 32)
            states = np.stack([observe(one[0]) for one in batch])
            targets = model.predict(states, verbose=0)
            future = model.predict(np.stack([observe(one[3]) for one in batch]), verbose=0)
            for row, (_, taken, gained, _, ended) in enumerate(batch):
                targets[row, taken] = gained if ended else gained + 0.9 * future[row].max()
            model.fit(states, targets, epochs=1, verbose=0)
        if done:
            break
    epsilon = max(0.05, epsilon * 0.8)
    print(f"episode {episode}: {step + 1} steps, reward {total:.2f}")
values = model.predict(np.eye(LENGTH, dtype="float32"), verbose=0)
print("Policy:", "".join("<>"[best] for best in values.argmax(axis=1)))
