# /// verdict
# needs = ["lightning"]
# who = ["rank 0", "rank 1"]
# says = ["val_loss", ["EarlyStopping", "early stopping", "Early stopping"]]
# never = ["onnection closed"]
# ///
"""Early stopping of Lightning looks for a metric that no step logs."""
import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("validation_loss", self.layer(batch[0]).square().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = lightning.Trainer(
    accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[EarlyStopping("val_loss")],
)
data = DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=4)
trainer.fit(Model(), data, data)
