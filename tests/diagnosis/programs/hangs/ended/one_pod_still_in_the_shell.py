# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh -c 'test $RANK != 1 || sleep 300; exec python {program}'"
# after = "joining"
# who = ["rank 1"]
# says = ["rank 1", "has not begun", "sleep 300"]
# never = ["message between them was lost", "rank 0 keeps"]
# short = true
# ///
"""The pod of rank 1 has not come to Python yet."""
import torch.distributed as dist

print("joining", flush=True)
dist.init_process_group("gloo")
