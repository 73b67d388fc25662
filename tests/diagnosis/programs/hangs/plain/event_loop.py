# /// verdict
# needs = ["torch"]
# after = "serving"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 waits in asyncio for a request that does not come; rank 0 waits in reduce_scatter."""
import asyncio

import torch
import torch.distributed as dist


async def serve():
    await asyncio.Event().wait()


dist.init_process_group("gloo")
print("serving", flush=True)
if dist.get_rank() == 1:
    asyncio.run(serve())  # here
dist.all_to_all_single(torch.zeros(4), torch.ones(4))
