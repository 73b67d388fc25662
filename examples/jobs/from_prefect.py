"""A Prefect flow that Prefect's Kubernetes worker runs in a Job: `python from_prefect.py` deploys it and asks for a run.

It needs prefect-kubernetes, a work pool `k8s` of type `kubernetes`, and a Prefect server at PREFECT_API_URL on a port that
pods reach: `rowlock up -d --host-ports 4200`.
"""

import os
import sys
from pathlib import Path

from prefect import flow, task
from prefect.deployments import run_deployment

HERE = Path(__file__).resolve()


@task
def step(weight: float, rate: float) -> float:
    return weight - rate * 2 * (weight - 3.0)


@flow(log_prints=True)
def train(rate: float = 0.1) -> float:
    weight = 0.0
    for _ in range(20):
        weight = step(weight, rate)
    print(f"weight {weight:.3f}")
    return weight


if __name__ == "__main__":
    prefect = str(Path(sys.executable).with_name("prefect"))  # the environment of this program, in the pod as well
    server = os.environ["PREFECT_API_URL"].replace("127.0.0.1", "host.rowlock.internal")
    variables = {
        "namespace": "runai-default",
        "command": f"{prefect} flow-run execute",
        "env": {"PREFECT_API_URL": server, "PREFECT_HOME": os.environ.get("PREFECT_HOME", "")},
        "image_pull_policy": "IfNotPresent",
    }
    flow.from_source(source=str(HERE.parent), entrypoint=f"{HERE.name}:train").deploy(
        "jobs", work_pool_name="k8s", image="rowlock.dev/host", build=False, push=False, job_variables=variables
    )
    print(run_deployment("train/jobs", timeout=0).id)
