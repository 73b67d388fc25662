# /// verdict
# who = ["rank 0", "rank 1"]
# says = ["KeyError: 'weights'", "{here}"]
# ranks = 1
# ///
"""A task of an asyncio.TaskGroup fails: the group's own error says only that there was one."""
import asyncio


async def load(name):
    await asyncio.sleep(0.1)
    return {"bias": 1}[name]  # here


async def main():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load("bias"))
        tasks.create_task(load("weights"))


asyncio.run(main())
