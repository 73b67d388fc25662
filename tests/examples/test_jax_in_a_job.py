"""JAX finds the processes of an Indexed Job by itself, from the API that a cluster gives its pods."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.end_to_end.jobs.test_batch_jobs import JOBS, SPACE, batch_job, conditions, logs_of

JAX = (
    "import jax; jax.distributed.initialize(); import jax.numpy as jnp; from jax.experimental import multihost_utils as m; "
    "print('process', jax.process_index(), 'of', jax.process_count(), 'sum', int(m.process_allgather(jnp.array([jax.process_index() + 1])).sum()))"
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("jax")) as made:
        made.up()
        yield made


@pytest.mark.examples
def test_jax_finds_its_processes_by_itself(machine: Cluster) -> None:
    """`jax.distributed.initialize()` without arguments asks the API for its pod and its Job: that needs a role and a Service."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed: `make test-examples` installs it")
    rules = [
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get"]},
    ]
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SPACE}"
    machine.api("POST", f"{rights}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": SPACE}],
    }
    machine.api("POST", f"{rights}/rolebindings", binding)
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": "jax"}}
    machine.api("POST", f"/api/v1/namespaces/{SPACE}/services", {"metadata": {"name": "jaxpods"}, "spec": service})
    job = batch_job(
        "jax", sys.executable, "-c", JAX, completions=2, parallelism=2, completionMode="Indexed", backoffLimit=0
    )
    pod = job["spec"]["template"]["spec"]
    pod["subdomain"] = "jaxpods"
    pod["containers"][0]["env"] = [{"name": "JAX_PLATFORMS", "value": "cpu"}]
    machine.api("POST", JOBS, job)
    machine.until(lambda: conditions(machine, "jax") & {"Complete", "Failed"}, "the group to end", 180)
    logs = logs_of(machine, "jax")
    assert [log.splitlines()[-1] for log in logs] == [f"process {i} of 2 sum 3" for i in range(2)], logs
