# /// verdict
# needs = ["torch"]
# after = "sharing"
# everyone = true
# who = ["rank 0", "rank 1", "rank 2"]
# ranks = 3
# says = ["different collectives", "rank 2", "{here}"]
# never = ["message between them was lost"]
# ///
"""Two ranks share a list of objects by broadcast; rank 2 gathers objects."""
import torch.distributed as dist

dist.init_process_group("gloo")
print("sharing", flush=True)
objects = ["a"]
if dist.get_rank() == 2:
    dist.gather_object(objects, dst=2, object_gather_list=[None] * 3)  # here
dist.broadcast_object_list(objects, src=2)
