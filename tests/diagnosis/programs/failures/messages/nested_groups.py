# /// verdict
# needs = ["torch"]
# ranks = 2
# who = ["rank 1"]
# says = ["ExceptionGroup: loading failed", "OSError: shard 7"]
# ///
"""Rank 1 raises a group in a group; rank 0 loses its peer."""
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    shards = ExceptionGroup("shards", [OSError("shard 7 is damaged"), KeyError("8")])
    raise ExceptionGroup("loading failed", [shards, ValueError("no labels")])
dist.barrier()
