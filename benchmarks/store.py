"""What one store does per second: durable creates, lists, and the fan-out to many watchers. Prints figures.

python benchmarks/store.py [DIRECTORY]     (default: a temporary one)
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from rowlock import kinds
from rowlock.objects import Object
from rowlock.storage.store import Store

CREATES, CLIENTS, WATCHERS, NEWS = 6_000, 16, 1_000, 50


def pod(index: int) -> Object:
    """A pod of about the size an operator makes."""
    env = [{"name": f"VARIABLE_{n}", "value": f"value-{index}-{n}"} for n in range(12)]
    container = {"name": "pytorch", "image": "train:1", "command": ["python", "train.py"], "env": env}
    labels = {"training.kubeflow.org/job-name": f"job-{index // 8}", "app": "train"}
    meta = {"name": f"pod-{index:06d}", "namespace": "default", "labels": labels}
    return {"metadata": meta, "spec": {"containers": [container], "restartPolicy": "Never"}}


async def creates(store: Store, clients: int, total: int, base: int) -> None:
    numbers = iter(range(base, base + total))
    waits: list[float] = []

    async def client() -> None:
        for number in numbers:
            began = time.perf_counter()
            await store.create(kinds.POD, pod(number))
            waits.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    taken = time.perf_counter() - began
    waits.sort()
    print(
        f"creates, {clients:3d} clients   {total / taken:8.0f} /s    "
        f"p50 {waits[len(waits) // 2] * 1e3:5.2f} ms  p99 {waits[len(waits) * 99 // 100] * 1e3:5.2f} ms"
    )


async def lists(store: Store) -> None:
    for limit in (0, 500):
        began = time.perf_counter()
        page = await store.list(kinds.POD, limit=limit)
        taken = time.perf_counter() - began
        print(
            f"list, page of {limit or 'all':>4}     {len(page.items):8d} of {store.view.count(kinds.POD)}   {taken * 1e3:5.2f} ms"
        )


async def fan_out(store: Store) -> None:
    seen: list[float] = []
    sent: dict[str, float] = {}

    async def watcher() -> None:
        left = NEWS
        async for change in store.watch(kinds.CONFIG_MAP, since=since):
            seen.append(time.perf_counter() - sent[change.object["metadata"]["name"]])
            left -= 1
            if not left:
                return

    since = store.revision
    tasks = [asyncio.create_task(watcher()) for _ in range(WATCHERS)]
    await asyncio.sleep(0)
    began = time.perf_counter()
    for number in range(NEWS):
        name = f"news-{number}"
        sent[name] = time.perf_counter()
        await store.create(kinds.CONFIG_MAP, {"metadata": {"name": name, "namespace": "default"}})
    await asyncio.gather(*tasks)
    taken = time.perf_counter() - began
    seen.sort()
    print(
        f"watch, {WATCHERS} watchers   {len(seen) / taken:8.0f} /s    "
        f"p50 {seen[len(seen) // 2] * 1e3:5.2f} ms  p99 {seen[len(seen) * 99 // 100] * 1e3:5.2f} ms"
    )


async def measure(path: Path) -> None:
    store = Store.open(path)
    await store.create(kinds.NAMESPACE, {"metadata": {"name": "default"}})
    await creates(store, 1, CREATES // 10, 0)
    await creates(store, CLIENTS, CREATES, CREATES)
    await creates(store, 100, CREATES, 10 * CREATES)
    await lists(store)
    await fan_out(store)
    await store.close()
    began = time.perf_counter()
    store = Store.open(path)
    print(
        f"recovery               {sum(store.view.counts().values()):8d} objects  {time.perf_counter() - began:6.3f} s"
    )
    await store.close()


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        asyncio.run(measure(Path(folder) / "cluster.db"))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes nothing, and answers --help
    main()
