# /// verdict
# needs = ["transformers"]
# after = "end of step 2"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Hugging Face's Trainer: rank 1 reads its terminal in a callback, and there is none."""
import os

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, rows):
        return {"loss": self.layer(rows).square().mean()}


class Pause(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        print("end of step", state.global_step, flush=True)
        if args.process_index == 1 and state.global_step == 2:
            reader, _ = os.pipe()
            os.read(reader, 1)  # here


args = TrainingArguments(
    os.environ["SCRATCH"], use_cpu=True, max_steps=20, report_to=[], save_strategy="no", disable_tqdm=True, ddp_backend="gloo"
)
Trainer(Model(), args, train_dataset=[{"rows": torch.ones(4)}] * 64, callbacks=[Pause()]).train()
