# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["ExceptionGroup", "TimeoutError: shard 3"]
# ///
"""Two of three tasks fail."""
import asyncio


async def fetch(shard):
    await asyncio.sleep(0.1)
    if shard % 2:
        raise TimeoutError(f"shard {shard}")


async def main():
    async with asyncio.TaskGroup() as group:
        for shard in (2, 3, 5):
            group.create_task(fetch(shard))


asyncio.run(main())
