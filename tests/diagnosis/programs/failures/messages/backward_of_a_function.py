# /// verdict
# needs = ["torch"]
# ranks = 2
# who = ["rank 1"]
# says = ["FloatingPointError: gradient is not finite", "{here}"]
# ///
"""An error in the backward pass of rank 1's own function, inside of the autograd engine."""
import torch
import torch.distributed as dist


class Check(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if dist.get_rank() == 1:
            raise FloatingPointError("gradient is not finite")  # here
        return gradient


dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
Check.apply(model(torch.ones(2, 4))).sum().backward()
dist.barrier()
