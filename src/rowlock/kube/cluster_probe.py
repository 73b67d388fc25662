"""Asks the API server every few seconds whether it answers: a cache cannot tell a quiet cluster from one that is gone.

probe = ClusterProbe(kube.connection)
tasks.create_task(probe.run())
probe.silence()     # "" or a sentence for answers that come from a cache
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from rowlock.errors import ApiError, Forbidden, NotFound, Unauthorized
from rowlock.kube.client import Kube
from rowlock.kube.connection import Request

INTERVAL_S, PATIENCE_S = 2.5, 4.0
"""Seconds between two probes, and timeout of one: a lost cluster is reported within seven seconds. The load on the API server is not
measurable."""
_QUESTION = Request("GET", "/api/v1/namespaces/kube-system", is_relayed=True)
"""A read that reaches etcd. A 403 or 404 counts as an answer, too. Marked as relayed so that a 500 is not retried."""
_MAX_REASON = 160
_REFUSED = "refuses the credentials of this server"


class ClusterProbe:
    """Probes one cluster. `others`: further clients of it, whose watches are also renewed after an outage."""

    def __init__(self, kube: Kube, others: Sequence[Kube] = (), *, clock: Callable[[], float] = time.time) -> None:
        self._kube, self._others, self._clock = kube, others, clock
        self._answered_at = clock()
        self._reason = ""
        self._answers = asyncio.Event()
        self._answers.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            self._note(await self._ask())
            await asyncio.sleep(INTERVAL_S)

    def silence(self) -> str:
        """A message that the caches may be outdated, with the reason; "" while the cluster answers."""
        if not self._reason:
            return ""
        then = time.strftime("%H:%M:%S UTC", time.gmtime(self._answered_at))
        if self._reason == _REFUSED:
            return f"the cluster {_REFUSED}, and what is shown is of {then}: who runs the server gives it new ones, its log says where"
        return f"the cluster does not answer ({self._reason}): what is shown is of {then}"

    def silent_seconds(self) -> float:
        """How long the cluster has not answered; 0 while it does."""
        return self._clock() - self._answered_at if self._reason else 0.0

    async def wait_for_answer(self) -> None:
        """Wait until the cluster answers; a refusal is an answer. Returns at once while it does."""
        await self._answers.wait()

    async def _ask(self) -> str:
        """Send one probe. Returns why it failed; "" if it succeeded."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._kube.connection.stream(_QUESTION) as answer:
                await answer.read()
        except TimeoutError:
            return f"nothing for {PATIENCE_S:.0f} s"
        except (Forbidden, NotFound):
            return ""  # it answers
        except Unauthorized:
            return _REFUSED
        except ApiError as error:
            return " ".join(error.message.split())[:_MAX_REASON]
        return ""

    def _note(self, reason: str) -> None:
        if reason in ("", _REFUSED):
            self._answers.set()
        else:
            self._answers.clear()
        if not reason:
            self._answered_at = self._clock()
            if self._reason:
                for kube in (self._kube, *self._others):
                    kube.connection.renew_connections()
        self._reason = reason
