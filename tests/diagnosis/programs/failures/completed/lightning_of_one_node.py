# /// verdict
# needs = ["lightning", "torch"]
# who = []
# says = ["It completed, but", "never connected", "num_nodes=2"]
# ///
"""A Lightning trainer that was not told how many nodes there are."""
import time

import lightning
import torch


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        time.sleep(0.3)
        loss = self.layer(batch).square().mean()
        print(f"step={self.global_step} loss={loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


data = torch.utils.data.DataLoader(torch.randn(240, 4), batch_size=4)
options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
lightning.Trainer(accelerator="cpu", max_epochs=1, **options).fit(Model(), data)
