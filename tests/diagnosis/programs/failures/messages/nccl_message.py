# /// verdict
# needs = ["torch"]
# ranks = 1
# who = ["rank 0"]
# says = ["DistBackendError", "socketStartConnect: Connect to 10.0.0.3"]
# ///
"""The way in which NCCL's errors come: six lines, the last of which says what happened."""
import torch.distributed as dist

raise dist.DistBackendError(
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \n"
    "Last error:\n"
    "socketStartConnect: Connect to 10.0.0.3<4711> failed : No route to host"
)
