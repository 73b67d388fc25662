# /// verdict
# needs = ["torch"]
# after = "step 0"
# ///
"""A pipeline whose second stage computes most of the time."""
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


class Part(torch.nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.layer = seconds, torch.nn.Linear(8, 8)

    def forward(self, x):
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            torch.randn(64, 64) @ torch.randn(64, 64)
        return self.layer(x)


dist.init_process_group("gloo")
rank = dist.get_rank()
stage = PipelineStage(Part(0.1 + 2 * rank), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2)
for step in range(5):
    schedule.step(*([torch.ones(4, 8)] if rank == 0 else []))
    print("step", step, flush=True)
dist.barrier()
