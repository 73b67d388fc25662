"""The jobs of the soak: of every kind, with programs that end well, fail, run on or burn the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Program = Literal["lines", "fails", "runs", "burns", "short"]
LINES = 60
COMMANDS: dict[Program, str] = {
    "lines": f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); sleep 0.05; done",
    "short": "echo here and gone",
    "fails": "echo about to fail; exit 3",
    "runs": "trap 'exit 0' TERM; while :; do echo alive; sleep 1; done",
    "burns": "timeout 8 sh -c 'while :; do :; done'; exit 0",
}
KINDS: dict[str, tuple[str, str, str]] = {
    "PyTorchJob": ("pytorchReplicaSpecs", "Master", "pytorch"),
    "TFJob": ("tfReplicaSpecs", "Chief", "tensorflow"),
    "XGBoostJob": ("xgbReplicaSpecs", "Master", "xgboost"),
    "PaddleJob": ("paddleReplicaSpecs", "Master", "paddle"),
    "JAXJob": ("jaxReplicaSpecs", "Worker", "jax"),
    "MPIJob": ("mpiReplicaSpecs", "Launcher", "mpi"),
}
"""Kind → field of the replicas, the role whose end is the job's, the container's name."""
MARK = "ROWLOCK_SOAK"
"""Environment variable of every program of the soak: whoever has it when all is deleted is an orphan."""


@dataclass
class Job:
    """One that was acknowledged by the server."""

    name: str
    kind: str
    program: Program
    disturbed: bool = False
    """The disk was full, or its rank was killed, while it ran: its log and its end may differ."""

    @property
    def path(self) -> str:
        return f"{jobs_path(self.kind)}/{self.name}"

    @property
    def expected(self) -> set[str]:
        """The condition types that may be true at its end."""
        ends = {
            "lines": {"Succeeded"},
            "fails": {"Failed"},
            "runs": {"Running"},
            "burns": {"Succeeded"},
            "short": {"Succeeded"},
        }
        return ends[self.program] | ({"Succeeded", "Failed", "Running", "Restarting"} if self.disturbed else set())


def jobs_path(kind: str) -> str:
    return f"/apis/kubeflow.org/v1/namespaces/runai-default/{kind.lower()}s"


def job_object(job: Job, mark: str, *, ranks: int = 1) -> dict[str, Any]:
    """The manifest; `ranks` counts all pods of the job."""
    replicas, lead, container = KINDS[job.kind]
    spec = {
        "containers": [
            {
                "name": container,
                "image": "host",
                "command": ["sh", "-c", COMMANDS[job.program]],
                "env": [{"name": MARK, "value": mark}],
            }
        ],
        "terminationGracePeriodSeconds": 2,
    }
    # "fails" must end: with Never it does at once.
    one = {"restartPolicy": "Never" if job.program == "fails" else "OnFailure", "template": {"spec": spec}}
    roles: dict[str, Any] = {lead: {"replicas": 1 if lead != "Worker" else ranks, **one}}
    if lead != "Worker" and ranks > 1:
        roles["Worker"] = {"replicas": ranks - 1, **one}
    run_policy = {"cleanPodPolicy": "None"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": job.kind,
        "metadata": {"name": job.name},
        "spec": {"runPolicy": run_policy, replicas: roles},
    }
