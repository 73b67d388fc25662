# /// verdict
# needs = ["transformers"]
# who = ["rank 0"]
# says = ["rank 0", "TypeError: unsupported operand", "{here}"]
# ///
"""Hugging Face's Trainer: rank 0's collator meets a missing field."""
import os

import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, rows):
        return {"loss": self.layer(rows).square().mean()}


def collate(records, served=[]):
    served.append(1)
    missing = None if os.environ["RANK"] == "0" and len(served) == 4 else 1.0
    return {"rows": torch.stack([record["rows"] * (missing + 0.0) for record in records])}  # here


args = TrainingArguments(
    os.environ["SCRATCH"], use_cpu=True, max_steps=20, report_to=[], save_strategy="no", disable_tqdm=True, ddp_backend="gloo"
)
Trainer(Model(), args, train_dataset=[{"rows": torch.ones(4)}] * 64, data_collator=collate).train()
