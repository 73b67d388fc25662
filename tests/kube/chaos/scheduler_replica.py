"""One replica of rowlock's scheduler as a process that can be killed: `python -m tests.kube.chaos.scheduler_replica KUBECONFIG`."""

from __future__ import annotations

import asyncio
import sys

from rowlock.kube.client import Kube
from rowlock.kube.installation import ensure_system_namespace
from rowlock.kube.leader_election import LeaseTimes
from rowlock.kube.rate_limit import Limits
from rowlock.kube.watches.object_decoder import ObjectDecoder
from rowlock.kube_scheduler import KubeScheduler

TIMES = LeaseTimes(duration=3.0, deadline=2.0, retry=0.3)
"""Shorter than in production: a killed leader shall be followed soon."""


async def main(kubeconfig: str) -> None:
    async with Kube.connect(kubeconfig, limits=Limits(qps=0), decoder=ObjectDecoder()) as kube:
        await ensure_system_namespace(kube)
        await KubeScheduler(kube, TIMES).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
