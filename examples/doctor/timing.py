"""The clock of the scripts beside this file: how long `fit` took, and a step once everything is compiled."""

import statistics
import time

import keras


class Clock(keras.callbacks.Callback):
    """Notes when each epoch ends, and prints what came of it."""

    def on_train_begin(self, logs=None):
        self.began = time.perf_counter()
        self.ends = []

    def on_epoch_end(self, epoch, logs=None):
        self.ends.append(time.perf_counter())

    def report(self, history, seconds):
        """Print the final loss, the seconds of the whole `fit`, and those of a step after the first epoch."""
        epochs = [end - begin for begin, end in zip(self.ends, self.ends[1:], strict=False)]
        steps = self.params["steps"]
        print(f"loss {history.history['loss'][-1]:.4f}")
        print(f"seconds {seconds:.2f}")
        print(f"steady {statistics.median(epochs) / steps:.6f}")
        print(f"steps {steps}")
