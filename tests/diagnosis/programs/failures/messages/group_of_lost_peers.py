# /// verdict
# who = ["rank 1"]
# says = ["rank 1", "KeyError: 'image'", "{here}"]
# never = ["rank 0 (pod"]
# ///
"""Rank 1 raises; rank 0 reads from it in two tasks, and its ExceptionGroup holds nothing but lost connections."""
import asyncio
import os
import struct
import time

PORT = int(os.environ["MASTER_PORT"])


async def serve(reader, writer):
    await asyncio.sleep(600)


async def lose():
    while True:
        try:
            reader, writer = await asyncio.open_connection(os.environ["HOST_OF_ONE"], PORT)
            break
        except OSError:
            await asyncio.sleep(0.2)
    writer.write(b"hello")
    if not await reader.read(100):
        raise ConnectionResetError(104, "Connection reset by peer")


async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(lose())
        group.create_task(lose())


import socket

if os.environ["RANK"] == "1":
    listener = socket.create_server(("", PORT))
    with open(os.environ["SCRATCH"] + "/host", "w") as file:
        file.write(socket.gethostbyname(socket.gethostname()))
    peers = [listener.accept()[0] for _ in range(2)]
    for peer in peers:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    {"picture": 1}["image"]  # here
else:
    while not os.path.exists(os.environ["SCRATCH"] + "/host"):
        time.sleep(0.1)
    time.sleep(0.5)
    os.environ["HOST_OF_ONE"] = open(os.environ["SCRATCH"] + "/host").read()
    asyncio.run(main())
