"""What an account's token costs at a start: a pod with the mount beside one without, and one with Kubernetes' variables alone.

`python -m benchmarks.token_start`; docs/pods.md says what was decided by its figures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from benchmarks.cluster import PODS, Client, pod, running
from benchmarks.jobs import Figure

RUNS = 200
NAMES = (
    "SERVICE_HOST",
    "SERVICE_PORT",
    "SERVICE_PORT_HTTPS",
    "PORT",
    *(f"PORT_443_TCP{end}" for end in ("", "_ADDR", "_PORT", "_PROTO")),
)
"""Of the variables that a kubelet gives every pod, after `KUBERNETES_`."""


def first_byte(client: Client, name: str, *, token: bool = False, variables: bool = False) -> float:
    """Milliseconds from create to the first byte of the log."""
    follower, made = client.connection(), pod(name, "echo", "hello", automountServiceAccountToken=token)
    if variables:
        env = [{"name": f"KUBERNETES_{end}", "value": "tcp://10.77.0.1:6443"} for end in NAMES]
        made["spec"]["containers"][0]["env"] = env
    began = time.perf_counter()
    client.call("POST", PODS, made)
    client.follow(follower, f"{PODS}/{name}/log")
    taken = (time.perf_counter() - began) * 1e3
    follower.close()
    client.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    return taken


def figures() -> Iterator[Figure]:
    """The three in turn, so that a neighbour disturbs all."""
    plain, token, variables = [], [], []
    with running("--cpus-per-node", "4000") as client:
        for name in ("warm-0", "warm-1", "warm-2"):
            first_byte(client, name, token=True)
        for i in range(RUNS):
            plain.append(first_byte(client, f"plain-{i}"))
            token.append(first_byte(client, f"token-{i}", token=True))
            variables.append(first_byte(client, f"variables-{i}", variables=True))
    yield Figure("create a pod with its account's token → first log byte", "ms", token, plain, "without, in turn")
    yield Figure("create a pod with KUBERNETES_* → first log byte", "ms", variables, plain, "without, in turn")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # it takes nothing, and answers --help
    for measured in figures():
        print(measured.row(), flush=True)
