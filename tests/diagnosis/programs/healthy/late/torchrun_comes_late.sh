# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh {program}"
# after = "computing"
# ///
# The master's pod computes for 20 seconds before its torchrun starts; the other torchrun tries to reach it.
[ "$RANK" = 1 ] || python -c '
import hashlib, time
print("computing", flush=True)
value, end = b"", time.monotonic() + 20
while time.monotonic() < end:
    value = hashlib.sha256(value).digest()
'
exec torchrun --nnodes 2 --rdzv-backend c10d --rdzv-id late --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" --no-python python -c '
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
'
