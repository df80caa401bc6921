# SPDX-License-Identifier: Apache-2.0
"""The callback in Keras itself, which trains a small network with its JAX backend, as Debian's PyTorch is too old for the other one.
Takes minutes the first time, to install 450 MB: in `make check STEPS=long`."""
from python_package import no_sanitizers  # noqa: F401  pylint: disable=unused-import
from real_trainers import trained

KERAS = """
    import json, os, time, numpy
    os.environ["KERAS_BACKEND"] = "jax"
    import keras
    from joulemark.callbacks import KerasCallback
    class Slow(keras.utils.PyDataset):
        def __len__(self): return 4
        def __getitem__(self, i):
            time.sleep(0.05)
            return numpy.ones((8, 4), "float32"), numpy.zeros((8, 1), "float32")
    class Fails(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if FAILS and epoch: raise RuntimeError("diverged")
    seen = []
    energy = KerasCallback(items=8, report=seen.append, sources="nvml")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    try: model.fit(Slow(), validation_data=Slow(), epochs=2, verbose=0, callbacks=[energy, Fails()])
    except RuntimeError as error:
        assert FAILS and "diverged" in str(error)
        energy.measurement.stop()
    model.evaluate(Slow(), verbose=0, callbacks=[energy])  # afterwards nothing is measured
    m = energy.measurement
    assert seen == ([] if FAILS else [m]) and isinstance(energy, keras.callbacks.Callback)
"""


def test_keras_itself():
    found = trained(["keras"], KERAS.replace("FAILS", "False"))
    assert list(found) == ["train", "validate"]
    assert found["train"][1:3] == [64, 2] and found["validate"][1:3] == [None, 2]
    assert found["train"][0] >= 0.3 and found["validate"][0] >= 0.3  # of its data alone


def test_keras_that_fails():
    found = trained(["keras"], KERAS.replace("FAILS", "True"))
    assert found["train"][1:3] == [32, 2] and found["validate"][2] == 1
