# /// verdict
# needs = ["lightning"]
# who = ["rank 1"]
# says = ["rank 1", "AssertionError: labels out of range", "{here}"]
# ///
"""An assertion of the user's in training_step, below forty frames of Lightning."""
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        assert not (self.global_rank == 1 and index == 3), "labels out of range"  # here
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = lightning.Trainer(
    accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4))
