# SPDX-License-Identifier: Apache-2.0
"""Trains Xception with an own top on random images by Keras, data-parallel by Horovod; prints "images: N", the total of all ranks,
after each step of the first rank."""
import argparse

import horovod.tensorflow.keras as hvd
import numpy
import tensorflow as tf


class Count(tf.keras.callbacks.Callback):
    def __init__(self, images_of_step):
        super().__init__()
        self.images_of_step, self.images = images_of_step, 0

    def on_train_batch_end(self, batch, logs=None):
        self.images += self.images_of_step
        print("images:", self.images, flush=True)


def build(side, classes):
    base = tf.keras.applications.Xception(include_top=False, weights=None, input_shape=(side, side, 3), pooling="avg")
    hidden = tf.keras.layers.Dense(256, activation="relu")(base.output)
    return tf.keras.Model(base.input, tf.keras.layers.Dense(classes, activation="softmax")(hidden))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--batch", type=int, default=32, help="images of each rank and step")
    options.add_argument("--image", type=int, default=224)
    options.add_argument("--images", type=int, default=10000, help="images of an epoch, of all ranks together")
    options.add_argument("--epochs", type=int, default=5)
    options.add_argument("--classes", type=int, default=69)
    o = options.parse_args()
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    model = build(o.image, o.classes)
    # Horovod before 0.28 supports only the optimizers from before Keras 2.11
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.legacy.Adam(1e-4 * hvd.size()))
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    random = numpy.random.default_rng(hvd.rank())
    images = random.standard_normal((o.batch, o.image, o.image, 3), dtype=numpy.float32)
    labels = random.integers(0, o.classes, o.batch)
    batches = tf.data.Dataset.from_tensors((images, labels)).repeat().prefetch(tf.data.AUTOTUNE)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)] + ([Count(o.batch * hvd.size())] if hvd.rank() == 0 else [])
    model.fit(batches, steps_per_epoch=max(1, o.images // (o.batch * hvd.size())), epochs=o.epochs, verbose=0, callbacks=callbacks)


if __name__ == "__main__":
    main()
