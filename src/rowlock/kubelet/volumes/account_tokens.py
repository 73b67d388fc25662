"""Service account tokens of pods, as the kubelet's token manager keeps them: requested once, again after four fifths of their
lifetime, dropped with the pod.

Admission adds a token volume to every pod. It costs a mount of its own, and a copy of /run (3 to 4 ms of a start of 16:
`benchmarks/token_start.py`), so it is made only for pods that can use it: whose account has rights, or that request it by
`automountServiceAccountToken: true`. The variables cost nothing but are set only together with it: a program that finds them looks
for the token, and exits if there is none (`jax.distributed.initialize` where the package `kubernetes` is installed).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from rowlock.errors import ApiError
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.kubelet.shim import netns

DEFAULT_SECONDS = 3600
TOKEN_VOLUME_PREFIX = "kube-api-access-"
"""The token volume that admission adds to every pod as a real API server does."""
_RENEWAL_SHARE = 0.8
"""The share of a token's lifetime after which a new one is requested."""


class TokenSource(Protocol):
    """Issues tokens: the API server."""

    def load(self) -> object:
        """Loads what the first token needs: takes a tenth of a second, in any thread."""
        ...

    def request_token(self, pod: PodSpec, audience: str, seconds: int) -> tuple[str, float]:
        """A token bound to the pod, and when it expires (seconds since the epoch). Raises ApiError."""
        ...

    def has_rights(self, namespace: str, account: str) -> bool:
        """Whether any role is bound to this account."""
        ...


@dataclass(slots=True)
class PodTokens:
    """The tokens of this node's pods. Without a source there are none."""

    source: TokenSource | None
    clock: Callable[[], float]
    address: tuple[str, int] | None = None
    """Host and port at which pods reach the API server; None where they cannot."""
    _is_ready: bool = False
    _tokens: dict[tuple[str, str, int], tuple[str, float]] = field(default_factory=dict)
    """Pod's uid, audience, seconds → token, and the time from which on a new one is requested."""

    def are_wanted(self, pod: PodSpec) -> bool:
        """Whether the pod should have the token volume that admission added."""
        if self.source is None or self.address is None:
            return False
        return pod.wants_token or self.source.has_rights(pod.namespace, pod.service_account)

    def server_variables(self, engine_address: str = "") -> dict[str, str]:
        """The variables by which in-cluster clients find the API server: those that a kubelet sets for the Service `kubernetes`. {} =
        pods cannot reach it. `engine_address`: this machine's in the engine's network, for pods in containers."""
        if self.address is None:
            return {}
        host, port = (
            (engine_address, str(netns.API_PORT)) if engine_address else (self.address[0], str(self.address[1]))
        )
        url, of_port = f"tcp://{host}:{port}", f"KUBERNETES_PORT_{port}_TCP"
        return {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBERNETES_SERVICE_PORT_HTTPS": port,
            "KUBERNETES_PORT": url,
            of_port: url,
            f"{of_port}_PROTO": "tcp",
            f"{of_port}_PORT": port,
            f"{of_port}_ADDR": host,
        }

    async def load(self) -> None:
        """Prepares for the first pod with a token, so that only pods with tokens wait for it. Raises ContainerConfigError."""
        if self._is_ready or self.source is None:
            return
        try:
            await asyncio.to_thread(self.source.load)
        except (OSError, ValueError) as error:
            raise ContainerConfigError(f"failed to fetch token: {error}", "FailedMount") from None
        self._is_ready = True

    def token(self, pod: PodSpec, audience: str, seconds: int) -> str:
        """A valid token of the pod's account. Raises ContainerConfigError if the cluster issues none."""
        if self.source is None:
            raise ContainerConfigError(
                "this cluster makes no service account tokens: use a Secret with a token of your own"
            )
        now, key = self.clock(), (pod.uid, audience, seconds)
        token, renewal = self._tokens.get(key, ("", 0.0))
        if now >= renewal:
            try:
                token, expires = self.source.request_token(pod, audience, seconds)
            except ApiError as error:
                raise ContainerConfigError(f"failed to fetch token: {error.message}") from None
            self._tokens[key] = token, now + (expires - now) * _RENEWAL_SHARE
        return token

    def renewable_pods(self, live: Iterable[str]) -> set[str]:
        """Pods (uids) whose token is due for renewal; tokens of pods that are not `live` are dropped."""
        pods, now = set(live), self.clock()
        for key in [key for key in self._tokens if key[0] not in pods]:
            del self._tokens[key]
        return {uid for (uid, _, _), (_, renewal) in self._tokens.items() if now >= renewal}
