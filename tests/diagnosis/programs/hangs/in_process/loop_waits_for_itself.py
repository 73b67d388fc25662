# /// verdict
# needs = ["torch"]
# after = "fetching"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""A coroutine of rank 1 waits for a result that its own event loop would have to compute; rank 0 waits in scatter_object_list."""
import asyncio

import torch.distributed as dist


async def fetch():
    return 3


async def main():
    loop = asyncio.get_running_loop()
    return asyncio.run_coroutine_threadsafe(fetch(), loop).result()  # here


dist.init_process_group("gloo")
if dist.get_rank() == 1:
    print("fetching", flush=True)
    asyncio.run(main())
dist.scatter_object_list([None], ["a", "b"], src=1)
