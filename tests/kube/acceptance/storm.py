"""A storm of submits and reads on our server: each submit is tried until it is accepted, and everything that was answered is kept."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

SUBMITTERS = 3
PAUSE_S = 0.25
"""Between two submits of one thread: a storm that an API server on a shared core can take."""
RETRY_S = 0.4
TIMEOUT_S = 75.0
"""Longer than an API server waits for etcd."""


@dataclass
class Storm:
    """`with Storm(data, ids) as storm:` submits and reads until the end of the block, and until each submit is accepted."""

    data: Path
    ids: dict[str, str]
    """`projectId` and `clusterId` of each submit."""
    name: str
    accepted: dict[str, str] = field(default_factory=dict)
    """Prefix → the id of the workload that was accepted for it."""
    codes: Counter[int] = field(default_factory=Counter)
    """Of submits; 0: no answer came."""
    last_refusal: str = ""
    warned_at: list[float] = field(default_factory=list)
    reads: Counter[int] = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Storm:
        works: list[Callable[[], None]] = [*(partial(self._submit_all, n) for n in range(SUBMITTERS)), self._read]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def finish(self, seconds: float) -> bool:
        """No new submits; whether those that were begun were accepted within this time."""
        self._over.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def is_told_since(self, moment: float) -> bool:
        """Whether a read has said since then that what it shows may be old."""
        return bool(self.warned_at) and self.warned_at[-1] >= moment

    def listed(self) -> set[str]:
        """The names of all workloads of the project, as the server lists them now. Raises httpx.HTTPError."""
        names: set[str] = set()
        offset: int | None = 0
        with self._client() as client:
            while offset is not None:
                answer = client.get("/api/v1/workloads", params={"limit": 500, "offset": offset})
                answer.raise_for_status()
                page = answer.json()
                names |= {one["name"] for one in page["workloads"] if one["projectId"] == self.ids["projectId"]}
                offset = page.get("next")
        return names

    def _client(self) -> httpx.Client:
        facts = json.loads((self.data / "server.json").read_text())
        token = (self.data / "token").read_text().strip()
        tls = ssl.create_default_context(cafile=str(self.data / "ca.crt"))
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=facts["url"], verify=tls, headers=headers, timeout=TIMEOUT_S)

    def _submit_all(self, thread: int) -> None:
        number = 0
        while not self._over.is_set():
            self._submit(f"{self.name}-{thread}-{number}")
            number += 1
            self._over.wait(PAUSE_S)

    def _submit(self, prefix: str) -> None:
        """Until it is accepted, with one key: a name that the server completes shows what is made twice."""
        body = {
            **self.ids, "name": prefix, "useGivenNameAsPrefix": True,
            "spec": {"image": "nothing:1", "distributedFramework": "PyTorch", "numWorkers": 1},
        }  # fmt: skip
        pause = threading.Event()
        while prefix not in self.accepted:
            try:
                with self._client() as client:
                    answer = client.post(
                        "/api/v1/workloads/distributed", json=body, headers={"Idempotency-Key": prefix}
                    )
            except (httpx.HTTPError, OSError, ValueError):  # the server is gone, or writes where it is just now
                self.codes[0] += 1
            else:
                self.codes[answer.status_code] += 1
                if answer.status_code == 202:
                    self.accepted[prefix] = str(answer.json()["workloadId"])
                else:
                    self.last_refusal = f"{prefix}: {answer.status_code} {answer.text}"
            pause.wait(RETRY_S)

    def _read(self) -> None:
        client: httpx.Client | None = None
        while not self._over.is_set():
            try:
                client = client or self._client()
                answer = client.get("/api/v1/workloads", params={"limit": 20})
                self.reads[answer.status_code] += 1
                if "what is shown is of" in answer.headers.get("warning", ""):
                    self.warned_at.append(time.monotonic())
            except (httpx.HTTPError, OSError, ValueError):
                self.reads[0] += 1
                if client is not None:
                    client.close()
                client = None
            self._over.wait(0.2)
        if client is not None:
            client.close()
