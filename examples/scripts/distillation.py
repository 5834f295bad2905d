"""Knowledge distillation: a small student learns from a teacher, by a `compute_loss` of its own."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(83)


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.teacher = teacher
        self.student = student

    def compile(self, optimizer, metrics, student_loss_fn, distillation_loss_fn, alpha=0.1, temperature=3):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha = alpha
        self.temperature = temperature

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        teacher_pred = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_pred / self.temperature, axis=1), ops.softmax(y_pred / self.temperature, axis=1)
        ) * (self.temperature**2)
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

    def call(self, x):
        return self.student(x)


def network(width, name):
    return keras.Sequential(
        [keras.Input((20,)), layers.Dense(width), layers.LeakyReLU(0.2), layers.Dense(5)], name=name
    )


weights = np.random.normal(size=(20, 5))
x = np.random.normal(size=(4_000, 20)).astype("float32")
y = np.argmax(x**2 @ np.abs(weights), axis=1)
x_train, y_train, x_test, y_test = x[:3_200], y[:3_200], x[3_200:], y[3_200:]

loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
teacher, student = network(128, "teacher"), network(12, "student")
alone = keras.models.clone_model(student)
teacher.compile("adam", loss, metrics=[keras.metrics.SparseCategoricalAccuracy()])
teacher.fit(x_train, y_train, epochs=5, verbose=2)
teacher.trainable = False

distiller = Distiller(student, teacher)
distiller.compile("adam", [keras.metrics.SparseCategoricalAccuracy()], loss, keras.losses.KLDivergence(), alpha=0.1)
distiller.fit(x_train, y_train, epochs=5, verbose=2)
alone.compile("adam", loss, metrics=[keras.metrics.SparseCategoricalAccuracy()])
alone.fit(x_train, y_train, epochs=5, verbose=0)
for model in (teacher, distiller, alone):
    print(model.name, model.evaluate(x_test, y_test, verbose=0))
