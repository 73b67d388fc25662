"""The same with Lightning: a callback keeps and loads the checkpoints, the sampler says which data come.

    python train_lightning.py
    rowlock verify-resume -n 2 -- python train_lightning.py

Lightning's own checkpoints are off: a Checkpoint holds what they hold, and where in the epoch training was.
"""

import os

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from rowlock.runtime import Checkpoint, ResumableSampler, progress

STEPS = int(os.environ.get("STEPS", "60"))


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)
        )

    def forward(self, inputs):
        return self.layers(inputs)

    def training_step(self, batch, index):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self(inputs), targets)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class ResumableLoader:
    """A DataLoader whose epoch begins where training was."""

    def __init__(self, dataset, sampler):
        self._sampler = sampler
        self._loader = DataLoader(dataset, batch_sampler=sampler)

    def __iter__(self):
        return self._sampler.batches(self._loader)

    def __len__(self):
        return len(self._sampler)


class ExactResume(lightning.Callback):
    """Loads when training begins, saves after steps. It counts the steps: Lightning counts those since it was started."""

    def __init__(self, sampler):
        self._sampler = sampler
        self._step = 0

    def on_train_start(self, trainer, module):
        (optimizer,), (schedule,) = trainer.optimizers, trainer.lr_scheduler_configs
        # the network, not the module around it, which gets the number of the batch, too: Lightning counts from 0 again
        objects = {"model": module.layers, "optimizer": optimizer, "scheduler": schedule.scheduler}
        self._checkpoint = Checkpoint(**objects, sampler=self._sampler, every=20)
        self._step = self._checkpoint.load()
        trainer.should_stop = self._step >= STEPS

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self._step += 1
        progress(self._step, STEPS, loss=outputs["loss"].item())
        self._checkpoint.step(self._step)
        trainer.should_stop = self._step >= STEPS

    def on_train_end(self, trainer, module):
        self._checkpoint.wait()


def main() -> None:
    lightning.seed_everything(7, verbose=False)
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    # Lightning begins the process group later, so the sampler is told which rank this is
    sampler = ResumableSampler(len(data), batch_size=16, seed=7, rank=rank, world_size=world_size)
    trainer = lightning.Trainer(
        accelerator="auto" if torch.cuda.is_available() else "cpu", devices=local_size, num_nodes=world_size // local_size,
        strategy="ddp" if world_size > 1 else "auto", max_epochs=-1, callbacks=[ExactResume(sampler)], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )
    trainer.fit(Model(), ResumableLoader(data, sampler))


if __name__ == "__main__":
    main()
