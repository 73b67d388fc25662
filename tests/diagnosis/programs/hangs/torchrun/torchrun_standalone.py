# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh -c 'echo launching; exec torchrun --standalone --nproc-per-node 2 {program}'"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# says = ["2 nodes", "PET_NNODES"]
# never = ["message between them was lost"]
# ///
"""Each pod starts torchrun for itself alone, but the operator's PET_NNODES makes both wait for a second node."""
import torch.distributed as dist

dist.init_process_group("gloo")
