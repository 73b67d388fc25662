# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh -c 'echo launching; exec torchrun --nnodes 3 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT {program}'"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# says = ["3 nodes"]
# never = ["message between them was lost"]
# ///
"""torchrun waits for three nodes, and the job has two."""
import torch.distributed as dist

dist.init_process_group("gloo")
