"""A function of two nodes by Kubeflow's SDK, on the cluster of KUBECONFIG or in the SDK's own local back end. For `trainjobs.py`.

    python trainjobs_session.py cluster|local REQUIREMENT_OF_TORCH RUNS

A line of JSON for each run: seconds from `train` to the end, the status, and how many ranks spoke.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

sdk: Any = import_module("kubeflow.trainer")
LIMIT_S = 900


def train() -> None:
    import os
    import sys

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    sys.stdout.write(f"rank {os.environ['RANK']} of {total.item():.0f}\n")


def main() -> None:
    where, torch, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    is_local = where == "local"
    client = sdk.TrainerClient(backend_config=sdk.LocalProcessBackendConfig() if is_local else None)
    more = {"packages_to_install": [torch]} if is_local else {}
    runtime = client.get_runtime("torch-distributed")
    for _ in range(runs):
        began = time.monotonic()
        name = client.train(runtime=runtime, trainer=sdk.CustomTrainer(func=train, num_nodes=2, **more))
        job = client.wait_for_job_status(name, {"Complete", "Failed"}, timeout=LIMIT_S, polling_interval=1)
        took = time.monotonic() - began
        lines = [line for step in job.steps for line in client.get_job_logs(name, step=step.name)]
        ranks = sum(part.startswith("rank ") for line in lines for part in str(line).splitlines())
        sys.stdout.write(json.dumps([took, job.status, ranks]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
