# /// verdict
# needs = ["torch"]
# who = ["rank 1"]
# says = ["rank 1", "AssertionError: activations of 8 features, expected 6", "{here}"]
# ///
"""The second stage of a pipeline refuses its input; the first loses its peer."""
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


class Part(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size, self.layer = size, torch.nn.Linear(8, 8)

    def forward(self, x):
        assert x.shape[-1] == self.size, f"activations of {x.shape[-1]} features, expected {self.size}"  # here
        return self.layer(x)


dist.init_process_group("gloo")
rank = dist.get_rank()
stage = PipelineStage(Part(8 if rank == 0 else 6), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2)
x = torch.ones(4, 8)
if rank == 0:
    schedule.step(x)
else:
    schedule.step()
dist.barrier()
