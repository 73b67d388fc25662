# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 1
# command = "sh -c 'echo launching; exec torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT {program}'"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# says = ["torchrun waits for 2 nodes", "1 pod runs one"]
# never = ["message between them was lost"]
# ///
"""The command is for two nodes, and the job has one pod."""
import torch.distributed as dist

dist.init_process_group("gloo")
