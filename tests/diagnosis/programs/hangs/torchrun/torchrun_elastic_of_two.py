# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 1
# command = "sh -c 'echo launching; exec torchrun --nnodes 2:4 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT {program}'"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# says = ["torchrun waits for 2 nodes", "--nnodes 2:4", "1 pod runs one"]
# ///
"""An elastic torchrun whose minimum is two nodes, in a job of one pod."""
import torch.distributed as dist

dist.init_process_group("gloo")
