# /// verdict
# needs = ["lightning"]
# after = "batch 2"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Lightning with DDP: a callback of rank 1 waits for a lock."""
import threading

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Pause(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        print("batch", index, flush=True)
        if trainer.global_rank == 1 and index == 2:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()  # here


trainer = lightning.Trainer(
    accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_epochs=1, logger=False, callbacks=[Pause()],
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4))
