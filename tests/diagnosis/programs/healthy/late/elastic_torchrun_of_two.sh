# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh {program}"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# ///
# An elastic torchrun for two to four nodes in a job of two pods: it waits 30 seconds for more, and then begins with two.
echo launching
exec torchrun --nnodes 2:4 --rdzv-backend c10d --rdzv-id pair --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" --no-python python -c '
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
print("together", flush=True)
'
