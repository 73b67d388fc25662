"""Builds the body of a submit, Run:ai's request, from the arguments of a Python program; `spec` may set any other field."""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from rowlock.sdk.client_errors import ClientError

THIS_MACHINE = "rowlock.dev/host"
"""The image name for running the node's own programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """The job to run. See `Client.submit` for the fields."""

    name: str
    command: str | Sequence[str] = ()
    project: str = ""
    image: str = THIS_MACHINE
    framework: str = "PyTorch"
    nnodes: int = 1
    nproc_per_node: int | str | None = None
    gpus: float = 0
    cpus: float | None = None
    memory: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    retries: int = 0
    name_is_prefix: bool = False
    """The server appends a suffix to make the name unique."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: str = ""
    """A key by which the server recognises this submit, for programs that retry by themselves; "" = a new one each time."""

    def key(self) -> str:
        """The idempotency key for all attempts of this submit; a new random one unless it was given."""
        return self.idempotency_key or str(uuid.uuid4())

    def body(self, default_project: str) -> dict[str, Any]:
        """The body of POST /workloads/distributed. Raises ClientError for invalid fields."""
        self._check()
        return {
            "name": self.name,
            **({"useGivenNameAsPrefix": True} if self.name_is_prefix else {}),
            "projectId": self.project or default_project,
            "spec": {**self._spec(), **self.spec},
            **({"shellEnvironment": dict(self.secret_env)} if self.secret_env else {}),
        }

    def _check(self) -> None:
        if isinstance(self.nnodes, bool) or not isinstance(self.nnodes, int) or self.nnodes < 1:
            raise ClientError(f"nnodes must be a whole number from 1, but is {self.nnodes!r}")
        if self.retries < 0:
            raise ClientError(f"retries must be 0 or more, but is {self.retries!r}")
        if self.image == THIS_MACHINE and not self.command:
            raise ClientError("command says what runs on this machine: command=[sys.executable, 'train.py']")

    def _spec(self) -> dict[str, Any]:
        words = shlex.split(self.command) if isinstance(self.command, str) else list(map(str, self.command))
        spec: dict[str, Any] = {
            "image": self.image,
            "distributedFramework": self.framework,
            **({"numWorkers": self.nnodes - 1} if self.nnodes > 1 else {"noWorkers": True}),
            "compute": self._compute(),
            "backoffLimit": self.retries,
            **({"restartPolicy": "OnFailure"} if self.retries else {}),
            "environmentVariables": [{"name": name, "value": str(value)} for name, value in self.env.items()],
        }
        if words:
            spec["command"] = [word.replace("$$", "$$$$") for word in words]  # Kubernetes reads `$$` as `$`
        if self.nproc_per_node is not None:
            spec["nprocPerNode"] = str(self.nproc_per_node)
        if self.working_dir or self.image == THIS_MACHINE:
            spec["workingDir"] = self._directory()
        return spec

    def _directory(self) -> str:
        """The absolute working directory of the pods. Raises ClientError if it is this program's own and was deleted."""
        try:
            return os.path.abspath(self.working_dir or os.getcwd())
        except FileNotFoundError:
            raise ClientError(
                "the working directory of this program was deleted: name one that exists with working_dir"
            ) from None

    def _compute(self) -> dict[str, Any]:
        compute: dict[str, Any] = {}
        if 0 < self.gpus < 1:
            compute |= {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": self.gpus}
        elif self.gpus:
            compute["gpuDevicesRequest"] = int(self.gpus) if self.gpus == int(self.gpus) else self.gpus
        if self.cpus is not None:
            compute["cpuCoreRequest"] = self.cpus
        if self.memory is not None:
            compute["cpuMemoryRequest"] = self.memory
        return compute


def job_request(**values: Any) -> JobRequest:
    """A request with these fields. Raises TypeError for an unknown field, with the nearest known one."""
    known = [each.name for each in fields(JobRequest)]
    for name in values:
        if name not in known:
            nearest = get_close_matches(name, known, 1)
            hint = (
                f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(known)}; `spec` takes the rest"
            )
            raise TypeError(f"a submit has no field {name!r}: {hint}")
    return JobRequest(**values)
