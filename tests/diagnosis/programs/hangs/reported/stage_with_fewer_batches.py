# /// verdict
# needs = ["torch"]
# after = "step 1"
# everyone = true
# who = ["rank 0", "rank 1"]
# says = ["{here}"]
# never = ["message between them was lost"]
# ///
"""The first stage of a pipeline makes one step less than the second, and goes on to the barrier."""
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
stage = PipelineStage(torch.nn.Linear(8, 8), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2)
for step in range(2 + rank):
    schedule.step(*([torch.ones(4, 8)] if rank == 0 else []))  # here
    print("step", step, flush=True)
dist.barrier()
