"""A job of a manifest that has failed and, by its operator's rule, keeps its pods: the run that waits for its GPUs says so."""

from __future__ import annotations

import subprocess

from tests.end_to_end.cluster import Cluster

CONTAINER = {
    "name": "pytorch",
    "image": "rowlock.dev/host",
    "command": ["sh", "-c", "exit 3"],
    "resources": {"limits": {"nvidia.com/gpu": 2}},
}
JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "kept"},
    "spec": {
        "runPolicy": {"backoffLimit": 1},
        "pytorchReplicaSpecs": {
            "Master": {
                "replicas": 1,
                "restartPolicy": "OnFailure",
                "template": {"spec": {"containers": [CONTAINER]}},
            }
        },
    },
}


def test_who_waits_for_the_gpus_of_a_failed_job_is_told_what_frees_them(cluster: Cluster) -> None:
    cluster.up("--simulated-gpus", "2")
    cluster.api("POST", "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs", JOB)
    cluster.until(
        lambda: cluster.json("rowlock", "describe", "kept", "--json")["phase"] == "Failed", "it fails", every=0.3
    )
    sentence = "kept has failed, but 1 pod of it still holds 2 GPUs: `rowlock delete kept` frees them."
    run = subprocess.Popen(
        ["rowlock", "run", "--name", "next", "-g", "1", "--", "echo", "it runs"],
        env=cluster.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    said = ""
    while sentence not in said:
        line = run.stderr.readline()
        assert line, f"it ended:\n{said}"
        said += line
    for words in (("explain", "next"), ("why", "next")):
        assert sentence in cluster.run("rowlock", *words)
    cluster.run("rowlock", "delete", "kept")
    out, _ = run.communicate(timeout=200)
    assert (run.returncode, out) == (0, "[rank 0] it runs\n")
