"""What was freed goes back to the machine: when it is much, at a quiet moment, or after ten seconds."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys

from rowlock.controllers.heap_collector import PATIENCE, WORTHWHILE, FreedMemory, find_trim

MIB = 1 << 20


def test_when_memory_is_given_back() -> None:
    resident, trims = [100 * MIB], list[int]()

    def trim() -> None:
        trims.append(resident[0])
        resident[0] = 110 * MIB

    async def body() -> None:
        memory = FreedMemory(trim, lambda: resident[0])
        assert not await memory.look(0.0, is_quiet=True), "the first look has nothing to compare with"
        resident[0] += WORTHWHILE - 1
        assert not await memory.look(2.0, is_quiet=True), "not worth it"
        resident[0] = 700 * MIB
        assert not await memory.look(4.0, is_quiet=False), "it is busy"
        assert await memory.look(6.0, is_quiet=True)
        assert not await memory.look(8.0, is_quiet=True), "what is left is in use"
        resident[0] = 300 * MIB
        for seconds in (10.0, 12.0, 9.0 + PATIENCE):
            assert not await memory.look(seconds, is_quiet=False)
        assert await memory.look(10.0 + PATIENCE, is_quiet=False), "it is never quiet"

    asyncio.run(body())
    assert trims == [700 * MIB, 300 * MIB]


FRAGMENTED = """
import asyncio
from rowlock.controllers.heap_collector import FreedMemory, resident_bytes

async def body():
    memory = FreedMemory()
    await memory.look(0.0, is_quiet=True)
    bytes(24 << 20)  # freed: from now on blocks below 24 MiB come from the heap
    blocks, kept = [], []
    for _ in range(300):
        blocks.append(bytes([1]) * (1 << 20))
        kept.append(bytes([1]) * 100_000)  # between them: the end of the heap stays
    del blocks
    grown = resident_bytes()
    assert await memory.look(2.0, is_quiet=True)
    print(grown >> 20, resident_bytes() >> 20)

asyncio.run(body())
"""


def test_a_heap_with_blocks_between_is_given_back() -> None:
    if find_trim() is None:  # another C library gives back by itself, or cannot be told to
        assert platform.libc_ver()[0] != "glibc"
        return
    done = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, timeout=200, check=True)
    grown, left = map(int, done.stdout.split())
    assert grown > 300 and left < grown - 200
