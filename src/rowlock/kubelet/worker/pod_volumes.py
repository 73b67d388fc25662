"""Keeps a pod's volumes up to date: before its first program starts, and whenever their contents change.

`volumes/volumes.py` (pure) determines what they are, `volumes/directories.py` makes them.
"""

import asyncio
import os
from dataclasses import dataclass, replace
from functools import partial

from rowlock.api import Api, View
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod.facts import ContainerConfigError, Problem
from rowlock.kubelet.pod.pod_state import PodState
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
    tokens: PodTokens
    directories: VolumeDirectories

    async def sync_volumes(self, context: PodContext, state: PodState) -> Problem | None:
        """Brings the pod's volumes up to date. Returns the problem that prevents it, if any."""
        pod = context.pod
        try:
            if volumes.may_need_tokens(pod, has_token=context.has_token):
                await self.tokens.load()
            current = volumes.resolve_volumes(
                VolumeContext(
                    pod,
                    self.view.get,
                    partial(environment.pod_field, pod, context.environment),
                    partial(environment.pod_resource, pod, pod.main_containers[0], context.environment),
                    self.tokens,
                    has_token=context.has_token,
                    rewrite_hostfile=context.rewrite_hostfile,
                )
            )
            if not (self.node.can_mount_memory or context.card.contained):
                current = tuple(replace(v, kind=_DISK_KINDS.get(v.kind, v.kind)) for v in current)
            if current != state.volumes:
                group = pod.fs_group if os.geteuid() == 0 else None
                if current:  # switching threads takes longer than the rest of this method
                    await asyncio.to_thread(self.directories.make_volumes, pod.uid, current, group)
                    await claims.bind(self.api, self.view, pod.namespace, self.directories, current)
                state.volumes = current
        except ContainerConfigError as missing:
            return missing.problem
        return None
