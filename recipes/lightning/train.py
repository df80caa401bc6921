# SPDX-License-Identifier: Apache-2.0
"""Trains a network of torchvision on random images by PyTorch Lightning; prints "images: N", the total of all devices, after
each step of the first rank."""
import argparse
import itertools

import pytorch_lightning as pl
import torch
import torchvision


class Steps:
    """The same batch in each step."""

    def __init__(self, batch, steps):
        self.batch, self.steps = batch, steps

    def __len__(self):
        return self.steps

    def __iter__(self):
        return itertools.repeat(self.batch, self.steps)


class Classifier(pl.LightningModule):
    def __init__(self, name, batch, side, steps):
        super().__init__()
        self.network = getattr(torchvision.models, name)(weights=None)
        self.batch, self.side, self.steps = batch, side, steps
        self.images = 0

    def train_dataloader(self):
        """Random images in the memory of the device, so that no time is spent on data."""
        images = torch.randn(self.batch, 3, self.side, self.side, device=self.device)
        return Steps((images, torch.randint(1000, (self.batch,), device=self.device)), self.steps)

    def training_step(self, batch, _):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.network(images), labels)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if batch[0].is_cuda:
            torch.cuda.synchronize()  # the step is over when it is counted
        self.images += len(batch[0]) * self.trainer.world_size
        if self.trainer.is_global_zero:
            print("images:", self.images, flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-4)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--model", default="resnet50")
    options.add_argument("--batch", type=int, default=256, help="images of each device and step")
    options.add_argument("--image", type=int, default=224)
    options.add_argument("--steps", type=int, default=550)
    options.add_argument("--devices", type=int, default=1)
    options.add_argument("--accelerator", default="auto")
    o = options.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    trainer = pl.Trainer(max_steps=o.steps, devices=o.devices, accelerator=o.accelerator, logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Classifier(o.model, o.batch, o.image, o.steps))


if __name__ == "__main__":
    main()
