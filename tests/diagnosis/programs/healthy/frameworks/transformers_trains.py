# /// verdict
# needs = ["transformers"]
# after = "loss"
# ///
"""Hugging Face's Trainer, which logs every fifth step and saves at the end."""
import os
import time

import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, rows):
        time.sleep(0.4)
        return {"loss": self.layer(rows).square().mean()}


args = TrainingArguments(
    os.environ["SCRATCH"], use_cpu=True, max_steps=30, logging_steps=5, report_to=[], save_strategy="no", disable_tqdm=True, ddp_backend="gloo"
)
Trainer(Model(), args, train_dataset=[{"rows": torch.ones(4)}] * 640).train()
