# /// verdict
# needs = ["torch"]
# who = ["rank 0", "rank 1"]
# says = ["SIGABRT", "op.preamble.length <= op.nbytes", "collective mismatch"]
# never = ["message between them was lost"]
# ///
"""An expert sends more tokens than the other one expects: the splits of all_to_all do not agree."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("routing", flush=True)
sent = [2, 6] if dist.get_rank() == 0 else [2, 2]
came = [2, 2]
tokens = torch.ones(sum(sent), 1024)
dist.all_to_all_single(torch.empty(sum(came), 1024), tokens, came, sent)
dist.barrier()
