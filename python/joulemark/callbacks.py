# SPDX-License-Identifier: Apache-2.0
"""Callbacks for the trainers of Lightning, of Hugging Face and of Keras: training and validation as regions.

    from joulemark.callbacks import LightningCallback
    energy = LightningCallback(items=lambda batch: len(batch[0]))
    lightning.Trainer(callbacks=[energy]).fit(model)
    print(energy.measurement)

None of these packages is imported here. Where one is imported already, the callback is an instance of its base class, which it
asks for. Of several processes of one machine the first one measures, as meters see the whole machine.
"""
import sys
import warnings

from ._library import Error, JoulemarkWarning
from ._measurement import Measurement


def _nothing(*_, **__):
    """A hook that this callback has no use for."""


class _Callback:
    """What all have: the measurement and the region that is open."""
    _bases = ()  # (module, class) of the trainer's own base class, the first that is imported

    def __new__(cls, *_, **__):
        for module, name in cls._bases:
            base = getattr(sys.modules.get(module), name, None)
            if isinstance(base, type) and not issubclass(cls, base):
                return object.__new__(type(cls.__name__, (cls, base), {"__module__": cls.__module__}))
        return object.__new__(cls)

    def __init__(self, items=None, report=None, **options):
        """items: what a step does, as a number or a function (see the class); None = not counted.
        report: called with the measurement at the end. options: those of joulemark.measure()."""
        super().__init__()
        self.measurement = None
        self._items, self._report, self._options = items, report, options
        self._region = None

    def __getattr__(self, name):
        """Trainers call every hook that they know, newer ones than this file too."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

    def _start(self, first):
        self._stop()  # of a training that ended by an error
        if first:
            self.measurement = Measurement(**self._options).start()

    def _switch(self, name):
        """One region is open at a time, while the measurement runs."""
        if self._region is not None:
            if self._region.name == name:
                return
            self._region.__exit__(None, None, None)
            self._region = None
        if name and self.measurement is not None and self.measurement._state == "running":
            self._region = self.measurement.region(name).__enter__()

    def _credit(self, *args):
        if self._region is None or self._items is None:
            return
        items = self._items(*args) if callable(self._items) else self._items
        if items is not None:
            self._region.credit(items)

    def _stop(self):
        self._switch(None)
        if self.measurement is None or self.measurement._state != "running":
            return
        try:
            self.measurement.stop()
        except Error as failed:  # a training is worth more than its measurement
            warnings.warn(f"The measurement failed: {failed}", JoulemarkWarning, stacklevel=3)
            return
        if self._report:
            self._report(self.measurement)


class LightningCallback(_Callback):
    """For Trainer(callbacks=[...]). Regions: "sanity check", "train" (an epoch is a stretch; a validation within
    it makes two of it), "validate". items(batch) counts a training batch."""
    _bases = (("lightning.pytorch", "Callback"), ("pytorch_lightning", "Callback"))

    state_key = "joulemark"

    def setup(self, trainer, pl_module, stage=None):
        pass

    def teardown(self, trainer, pl_module, stage=None):
        self._stop()

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        pass

    def on_fit_start(self, trainer, pl_module):
        self._start(getattr(trainer, "local_rank", 0) == 0)

    def on_train_epoch_start(self, trainer, pl_module):
        self._switch("train")

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx, *_):
        self._switch("train")  # after a validation within the epoch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, *_):
        self._credit(batch)

    def on_train_epoch_end(self, trainer, pl_module):
        self._switch(None)

    def on_validation_start(self, trainer, pl_module):
        self._switch("sanity check" if getattr(trainer, "sanity_checking", False) else "validate")

    def on_validation_end(self, trainer, pl_module):
        self._switch(None)

    def on_fit_end(self, trainer, pl_module):
        self._stop()

    def on_exception(self, trainer, pl_module, exception):
        self._stop()


class TrainerCallback(_Callback):
    """For transformers.Trainer(callbacks=[...]). Regions: "train" and "evaluate", from its first batch on.
    items(args, state) counts an optimizer step."""
    _bases = (("transformers", "TrainerCallback"), ("transformers.trainer_callback", "TrainerCallback"))

    def on_train_begin(self, args, state, control, **_):
        self._start(getattr(state, "is_local_process_zero", True))
        self._switch("train")

    def on_step_begin(self, args, state, control, **_):
        self._switch("train")  # after an evaluation

    def on_step_end(self, args, state, control, **_):
        self._credit(args, state)

    def on_prediction_step(self, args, state, control, **_):
        self._switch("evaluate")

    def on_evaluate(self, args, state, control, **_):
        self._switch(None)

    def on_train_end(self, args, state, control, **_):
        self._stop()


class KerasCallback(_Callback):
    """For model.fit(callbacks=[...]). Regions: "train" (an epoch is a stretch) and "validate". items(batch, logs) counts a
    training step, of which Keras gives the index and the metrics; a number is the size of a batch."""
    _bases = (("keras.callbacks", "Callback"), ("keras.src.callbacks", "Callback"))

    def on_train_begin(self, logs=None):
        self._start(True)

    def on_epoch_begin(self, epoch, logs=None):
        self._switch("train")

    def on_train_batch_end(self, batch, logs=None):
        self._credit(batch, logs)

    def on_test_begin(self, logs=None):
        self._switch("validate")

    def on_test_end(self, logs=None):
        self._switch(None)

    def on_epoch_end(self, epoch, logs=None):
        self._switch(None)

    def on_train_end(self, logs=None):
        self._stop()
