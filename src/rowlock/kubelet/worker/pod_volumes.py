"""The volumes of a pod, brought up to date: before its first program, and again when what they show has changed.

What they are says `volumes/volumes.py` (pure), `volumes/directories.py` makes them.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rowlock.api import Api, View
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod.facts import ContainerConfigError, Problem
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.volume import Volume
from rowlock.kubelet.volumes import claims, volumes
from rowlock.kubelet.volumes.account_tokens import PodTokens
from rowlock.kubelet.volumes.directories import VolumeDirectories
from rowlock.kubelet.volumes.volumes import VolumeContext
from rowlock.kubelet.worker import environment
from rowlock.kubelet.worker.pod_context import PodContext

_DISK_KINDS = {"memory": "empty"}


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The kubelet's volume manager."""

    api: Api
    view: View
    node: NodeContext
    network: PodNetwork
    tokens: PodTokens
    directories: VolumeDirectories

    async def sync_volumes(self, context: PodContext, state: PodState) -> Problem | None:
        """Makes the pod's volumes as they should be now; what stands in the way."""
        pod = context.pod
        try:
            await self.tokens.prepare(pod)
            current = self._resolve_volumes(context) if pod.volumes else ()
            if current != state.volumes:
                group = pod.fs_group if os.geteuid() == 0 else None
                await asyncio.to_thread(self.directories.make_volumes, pod.uid, current, group)
                await claims.bind(self.api, self.view, pod.namespace, self.directories, current)
                state.volumes = current
        except ContainerConfigError as missing:
            return missing.problem
        return None

    def _resolve_volumes(self, context: PodContext) -> tuple[Volume, ...]:
        """The pod's volumes as they should be now. Raises ContainerConfigError (FailedMount)."""
        pod, place = context.pod, context.environment

        def resource(ref: Mapping[str, Any]) -> str:
            return environment.pod_resource(pod, pod.main_containers[0], place, ref)

        def field(path: str) -> str:
            return environment.pod_field(pod, place, path)

        rewrite = None if context.has_own_address else self.network.hostfile_rewriter(pod)
        resolved = volumes.resolve_volumes(
            VolumeContext(
                pod, self.view.get, field, resource, self.tokens, has_token=context.has_token, rewrite_hostfile=rewrite
            )
        )
        if self.node.can_mount_memory or context.card.contained:
            return resolved
        return tuple(replace(v, kind=_DISK_KINDS.get(v.kind, v.kind)) for v in resolved)
