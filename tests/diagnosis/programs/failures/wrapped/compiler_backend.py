# /// verdict
# needs = ["torch"]
# ranks = 1
# who = ["rank 0"]
# says = ["LookupError: no kernel for aten.erfinv", "{here}"]
# ///
"""The backend of torch.compile raises: torch's error begins with a line about the backend, and advice follows the program's words."""
import torch


def backend(graph, inputs):
    raise LookupError("no kernel for aten.erfinv on this device")  # here


@torch.compile(backend=backend)
def step(x):
    return torch.erfinv(x).sum()


step(torch.rand(8))
