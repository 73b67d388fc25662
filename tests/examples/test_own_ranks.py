"""A program that starts its own ranks: Lightning does, and needs no launcher."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from tests.end_to_end.cluster import lent

LIGHTNING = """
import lightning, torch

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        return self.layer(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
    def on_train_start(self):
        print(f"local rank {self.trainer.local_rank} of {self.trainer.world_size}", flush=True)

if __name__ == "__main__":
    data = torch.utils.data.TensorDataset(torch.ones(16, 4))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
"""


@pytest.mark.examples
def test_a_program_that_starts_its_own_ranks_need_not_wait_for_a_launcher(tmp_path: Path) -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("lightning is not installed: `make test-examples` installs it")
    (tmp_path / "train.py").write_text(LIGHTNING)
    with lent(tmp_path / "ranks") as running:
        running.up("--simulated-gpus", "2")
        line = ("rowlock", "run", "--nnodes", "1", "--", sys.executable, "train.py")
        said = running.run(*line, cwd=tmp_path, timeout=240)
    assert "is completed" in said
    assert all(f"local rank {n} of 2" in said for n in range(2)), said
