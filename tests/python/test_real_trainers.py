# SPDX-License-Identifier: Apache-2.0
"""The callbacks in the trainers themselves: PyTorch Lightning and transformers train a small network on the processor, while the
power of two false GPUs is constant, so that the energy of any time is known."""
import importlib.util

import pytest

from python_package import no_sanitizers  # noqa: F401  pylint: disable=unused-import
from real_trainers import trained

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="python3-torch is not installed")

PURPOSES = "trainers", "networks"

NETWORK = """
    import json, time, warnings, torch
    class Slow(torch.utils.data.Dataset):
        def __len__(self): return 32
        def __getitem__(self, i):
            time.sleep(0.005)
            return {"x": torch.ones(4), "labels": torch.zeros(1)}
"""

LIGHTNING = NETWORK + """
    # Debian's torch is a 1.13 of before its release, whose parts for several processes do not load in Python 3.11
    if not hasattr(torch, "_UntypedStorage"): torch._UntypedStorage = torch.UntypedStorage
    torch.distributed.is_available = lambda: False
    import pytorch_lightning as pl
    from joulemark.callbacks import LightningCallback
    class Net(pl.LightningModule):
        def __init__(self): super().__init__(); self.layer = torch.nn.Linear(4, 1)
        def loss(self, batch): return ((self.layer(batch["x"]) - batch["labels"]) ** 2).mean()
        def training_step(self, batch, i):
            if FAILS and self.current_epoch: raise RuntimeError("diverged")
            return self.loss(batch)
        def validation_step(self, batch, i): self.loss(batch)
        def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
    seen = []
    energy = LightningCallback(items=lambda batch: len(batch["x"]), report=seen.append, sources="nvml")
    loader = lambda: torch.utils.data.DataLoader(Slow(), 8)
    trainer = pl.Trainer(max_epochs=2, callbacks=[energy], logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False, accelerator="cpu")
    try: trainer.fit(Net(), loader(), loader())
    except RuntimeError as error: assert FAILS and "diverged" in str(error)
    m = energy.measurement
    assert seen == [m]
"""

HUGGING_FACE = NETWORK + """
    import sys, transformers
    from joulemark.callbacks import TrainerCallback
    class Net(torch.nn.Module):
        def __init__(self): super().__init__(); self.layer = torch.nn.Linear(4, 1)
        def forward(self, x, labels=None): return {"loss": ((self.layer(x) - labels) ** 2).mean(), "logits": self.layer(x)}
    seen = []
    energy = TrainerCallback(items=lambda args, state: args.train_batch_size, report=seen.append, sources="nvml")
    args = transformers.TrainingArguments(sys.argv[1], num_train_epochs=2, per_device_train_batch_size=8, eval_strategy="epoch",
                                          save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
    transformers.Trainer(Net(), args, train_dataset=Slow(), eval_dataset=Slow(), callbacks=[energy]).train()
    m = energy.measurement
    assert seen == [m]
"""

def test_lightning_itself():
    found = trained(PURPOSES, LIGHTNING.replace("FAILS", "False"))
    assert list(found) == ["sanity check", "train", "validate"]
    assert [found[n][1] for n in found] == [None, 64, None] and found["validate"][2] == 2 and found["train"][2] >= 2
    assert found["train"][0] >= 0.32 and found["validate"][0] >= 0.3  # of its loader alone


def test_lightning_that_fails():
    found = trained(PURPOSES, LIGHTNING.replace("FAILS", "True"))
    assert found["train"][1] == 32


def test_hugging_face_itself(tmp_path):
    found = trained(PURPOSES, HUGGING_FACE, tmp_path)
    assert list(found) == ["train", "evaluate"]
    assert found["train"][1] == 64 and found["evaluate"][1] is None and found["evaluate"][2] == 2
    assert found["train"][0] >= 0.32
