"""A Dagster job whose op trains in a Kubernetes Job: `python from_dagster.py`, where dagster-k8s is installed."""

import os
import sys
from pathlib import Path

from dagster import OpExecutionContext, job, op
from dagster_k8s import execute_k8s_job

PROGRAM = Path(__file__).with_name("sweep.py").resolve()


@op
def train(context: OpExecutionContext) -> None:
    execute_k8s_job(
        context,
        image="rowlock.dev/host",
        command=["python", str(PROGRAM)],
        namespace="runai-default",
        load_incluster_config=False,
        kubeconfig_file=os.environ["KUBECONFIG"],
        job_spec_config={"backoffLimit": 0},
    )


@job
def pipeline() -> None:
    train()


if __name__ == "__main__":
    sys.exit(not pipeline.execute_in_process().success)
