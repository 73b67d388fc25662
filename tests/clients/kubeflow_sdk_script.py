"""What users do with Kubeflow's SDK, unmodified: a script of its own, for its environment has no pytest.

    KUBECONFIG=FILE python kubeflow_sdk_script.py NAME

Does what the function NAME does, and prints what came of it as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from importlib import import_module
from typing import Any

sdk: Any = import_module("kubeflow.trainer")
RUNTIME = "torch-distributed"
PATIENCE_S = 400


class Heard(logging.Handler):
    """What the SDK warns about."""

    def __init__(self) -> None:
        super().__init__()
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.sentences.append(record.getMessage())


def speak() -> None:
    """Runs on the nodes: the SDK takes the text of a function along."""
    import os
    import sys

    rank, count, word = os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["WORD"]
    sys.stdout.write(f"{word} from rank {rank} of {count}\n")


def life(client: Any) -> dict[str, Any]:
    """From the list of runtimes to a deleted job."""
    runtime = client.get_runtime(RUNTIME)
    trainer = sdk.CustomTrainer(func=speak, num_nodes=2, env={"WORD": "hello"})
    found: dict[str, Any] = {"runtimes": [one.name for one in client.list_runtimes()]}
    client.get_runtime_packages(runtime)
    name = client.train(runtime=runtime, trainer=trainer)
    wait_until(lambda: "node-0" in started(client, name))  # the SDK follows nothing that waits
    found["followed"] = list(client.get_job_logs(name, follow=True))
    job = client.wait_for_job_status(name, timeout=PATIENCE_S, polling_interval=1)
    found |= {"status": job.status, "steps": {step.name: step.status for step in job.steps}}
    found["node-1"] = list(client.get_job_logs(name, step="node-1"))
    wait_until(lambda: "JobSet AllJobsCompleted" in told(client, name))
    found["events"] = sorted(told(client, name))
    found["listed"] = name in [one.name for one in client.list_jobs(runtime=runtime)]
    client.delete_job(name)
    found["after"] = said(lambda: client.get_job(name))
    return found


def refusals(client: Any) -> dict[str, Any]:
    """What cannot run, and how a user learns the reason."""
    trainer = sdk.CustomTrainer(func=speak)
    waits = client.train(runtime="jax-distributed", trainer=trainer)
    tuned = client.train(
        runtime="torchtune-llama3.2-1b",
        initializer=sdk.Initializer(
            dataset=sdk.HuggingFaceDatasetInitializer(storage_uri="hf://some/data"),
            model=sdk.HuggingFaceModelInitializer(storage_uri="hf://some/model"),
        ),
        trainer=sdk.BuiltinTrainer(config=sdk.TorchTuneConfig(batch_size=2)),
    )
    found: dict[str, Any] = {
        "unknown": said(lambda: client.train(runtime="torch-distribute", trainer=trainer)),
        "not there": said(lambda: client.get_job("nobody")),
        "optimizer": said(import_module("kubeflow.optimizer").OptimizerClient().list_jobs),
        "no image": first_message(client, waits),
        "tuned": first_message(client, tuned),
    }
    wait_until(lambda: len(client.get_job(tuned).steps) == 2)
    found["tuned steps"] = sorted(step.name for step in client.get_job(tuned).steps)
    for name in (waits, tuned):
        client.delete_job(name)
    return found


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it was awaited in vain"
        time.sleep(0.1)


def started(client: Any, name: str) -> set[str]:
    """The steps that run or have run."""
    return {step.name for step in client.get_job(name).steps if step.status != "Pending"}


def told(client: Any, name: str) -> set[str]:
    """Kind and reason of each event."""
    return {f"{event.involved_object_kind} {event.reason}" for event in client.get_job_events(name)}


def said(call: Any) -> str:
    """The error of a call, with what the server said to it."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 (whatever a user gets)
        return f"{error} | {getattr(error.__cause__, 'body', '')}"
    return ""


def first_message(client: Any, name: str) -> str:
    """The message of the first event that tells of a failure."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for event in client.get_job_events(name):
            if event.reason == "Failed":
                return str(event.message)
        time.sleep(0.1)
    return ""


def main() -> None:
    heard = Heard()
    logging.getLogger().addHandler(heard)
    found = {"life": life, "refusals": refusals}[sys.argv[1]](sdk.TrainerClient())
    sys.stdout.write("\n" + json.dumps({**found, "warnings": heard.sentences}) + "\n")


if __name__ == "__main__":
    main()
