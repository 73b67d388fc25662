"""`rowlock up --kubeconfig … --operator own`: our job operators on a cluster that is not ours, and never beside Kubeflow's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conformance.subjects import REPO, embedded_server, open_store, real_cluster, real_cluster_missing
from tests.end_to_end.cluster import BIN, Cluster, lent
from tests.kube.played_nodes import played_nodes
from tests.kube.test_own_scheduler import account_kubeconfig
from tests.kube.test_served_cluster import kubectl

from rowlock import kinds
from rowlock.errors import Internal
from rowlock.kube.install.job_kinds import job_crd_objects
from rowlock.kube_operator.operator import CheckedJobController, KubeOperator, OperatorTimes
from rowlock.kube_operator.presence import TRAINING_OPERATOR
from rowlock.objects import Object, micro_timestamp, name
from rowlock.storage.store import Store

EXAMPLES = REPO / "examples" / "distributed-training-jobs"


async def store_with_namespace() -> Store:
    store = open_store()
    await store.create(kinds.NAMESPACE, {"metadata": {"name": "rowlock-system"}})
    return store


def test_nobody_answers_and_the_question_is_taken_back() -> None:
    async def ask() -> tuple[str, int]:
        store = await store_with_namespace()
        found = await TRAINING_OPERATOR.find(store, "abc", 0.2)
        left = len((await store.list(kinds.PYTORCHJOB)).items)
        await store.close()
        return found, left

    assert asyncio.run(ask()) == ("", 0)


def test_who_writes_a_status_is_another_operator() -> None:
    async def ask() -> str:
        store = await store_with_namespace()
        asking = asyncio.ensure_future(TRAINING_OPERATOR.find(store, "abc", 30))
        while not (found := (await store.list(kinds.PYTORCHJOB)).items):
            await asyncio.sleep(0)
        status = {"conditions": [{"type": "Created", "status": "True"}]}
        await store.update(kinds.PYTORCHJOB, {**found[0], "status": status}, subresource="status")
        answer = await asking
        await store.close()
        return answer

    assert "wrote a status" in asyncio.run(ask())


def test_an_operator_that_is_down_is_there_by_its_webhook() -> None:
    class Webhook:
        async def list(self, *_: Any, **__: Any) -> Any:
            from rowlock.api import Page

            return Page([], 1, "", None)

        async def create(self, *_: Any, **__: Any) -> Object:
            raise Internal('failed calling webhook "validator.pytorchjob.training-operator.kubeflow.org"')

    found = asyncio.run(TRAINING_OPERATOR.find(Webhook(), "abc", 1))  # type: ignore[arg-type]
    assert "its webhook is installed" in found


class CountedOperator(KubeOperator):
    """Says when it acts, and does nothing."""

    acts = 0

    async def _act(self) -> None:
        self.acts += 1
        await asyncio.Event().wait()

    async def lead(self, terms: int) -> asyncio.Task[None]:
        """A term, once it acts for so many times."""
        task = asyncio.create_task(self._lead())
        while self.acts < terms:
            await asyncio.sleep(0.005)
        return task

    async def answer(self, store: Store) -> None:
        """As Kubeflow's does, when it is asked for the next time."""
        while not (asked := (await store.list(kinds.PYTORCHJOB)).items):
            await asyncio.sleep(0.005)
        status = {"conditions": [{"type": "Created", "status": "True"}]}
        await store.update(kinds.PYTORCHJOB, {**asked[0], "status": status}, subresource="status")


def test_who_was_alone_before_it_lost_the_cluster_looks_while_it_acts() -> None:
    """Jobs have waited long enough. Where Kubeflow's operator has come meanwhile, ours stop, and look first from then on."""

    async def body() -> None:
        store = await store_with_namespace()
        operator = CountedOperator(store, "abc", OperatorTimes(patience=0.2, look_interval=0.1))  # type: ignore[arg-type]
        began = time.monotonic()
        term = await operator.lead(1)
        assert time.monotonic() - began > 0.15, "who knows nothing looks first"
        term.cancel()
        await asyncio.wait({term})
        operator._times = OperatorTimes(patience=3600.0, look_interval=0.1)
        term = await operator.lead(2)
        await operator.answer(store)
        while not term.done() and operator._is_alone:
            await asyncio.sleep(0.005)
        await operator.answer(store)
        assert operator.acts == 2, "it waits while somebody else has the jobs"
        term.cancel()
        await asyncio.wait({term})
        await store.close()

    asyncio.run(asyncio.wait_for(body(), 200))


def decide(job: Object) -> list[str]:
    """What our operator does about a job that no webhook has seen: the names of the writes, and reasons of events."""

    class View:
        def get(self, kind: Any, *_: Any) -> Object | None:
            return job if kind is kinds.PYTORCHJOB else None

        def by_label(self, *_: Any) -> list[Object]:
            return []

        by_owner = by_label

    from rowlock.objects import Key

    decision = CheckedJobController(kinds.PYTORCHJOB).decide(View(), Key("n", "j"), 0.0)  # type: ignore[arg-type]
    return [getattr(write, "reason", type(write).__name__) for write in decision.writes]


def pytorch_job(**spec: Any) -> Object:
    metadata = {
        "name": "j",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    "spec",
    [
        {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": []}}}}},
        {"pytorchReplicaSpecs": {"Captain": {"template": {"spec": {"containers": [{"name": "pytorch"}]}}}}},
        {"pytorchReplicaSpecs": {"Master": {"template": {"spec": "nothing"}}}},
        {"pytorchReplicaSpecs": 7},
    ],
)
def test_what_no_webhook_has_refused_is_told_and_left_alone(spec: Any) -> None:
    assert decide(pytorch_job(**spec)) == ["InvalidJob"]


def test_a_question_to_another_operator_is_not_answered_by_ours() -> None:
    job = TRAINING_OPERATOR.probe("abc")
    assert decide({**pytorch_job(), **job, "metadata": {**pytorch_job()["metadata"], **job["metadata"]}}) == []


def test_the_kinds_are_those_of_kubeflow() -> None:
    made = {
        name(crd): crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] for crd in job_crd_objects()
    }
    assert set(made) == {kind.resource for kind in kinds.JOBS}
    assert made["tfjobs.kubeflow.org"]["spec"]["required"] == ["tfReplicaSpecs"]


def test_two_operators_are_refused(tmp_path: Path) -> None:
    """The embedded cluster's operators stand for Kubeflow's: they answer."""
    with (
        embedded_server(tmp_path, "rowlock.serve", "--without", "scheduler,kubelet") as kubeconfig,
        lent(tmp_path) as served,
    ):
        refusal = served.run("rowlock", "up", "-d", "--kubeconfig", str(kubeconfig), "--operator", "own", code=1)
        assert "has Kubeflow's training operator" in refusal and "leave out --operator own" in refusal
    assert "--operator needs --kubeconfig" in served.run("rowlock", "up", "-d", "--operator", "own", code=2)


# ------------------------------------------------------------ a real kube-apiserver without the operator


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of an account with the rights of the manifests, on a cluster that had no kind of job before them."""
    if missing := real_cluster_missing():
        pytest.skip(missing)
    directory = tmp_path_factory.mktemp("bare")
    with real_cluster(directory, "--scheduler") as admin, played_nodes(admin, 2, 4):
        (directory / "admin").write_text(str(admin))
        yield account_kubeconfig(admin, directory, "--operator", "own")


@pytest.fixture
def served(bare: Path, tmp_path: Path) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        made.up("--kubeconfig", str(bare), "--operator", "own")
        yield made


def pods_of(admin: Path, job: str) -> list[dict[str, Any]]:
    said = kubectl(admin, "get", "pods", "-l", f"training.kubeflow.org/job-name={job}", "-o", "json")
    items: list[dict[str, Any]] = json.loads(said)["items"]
    return items


@pytest.mark.real
@pytest.mark.parametrize("manifest", ["distributed-tensorflow-job.yaml", "distributed-pytorch-job.yaml"])
def test_the_notebooks_jobs_run_without_kubeflows_operator(served: Cluster, bare: Path, manifest: str) -> None:
    """As the third and fourth seed create them, with kubectl."""
    admin = Path((bare.parent / "admin").read_text())
    job = yaml.safe_load((EXAMPLES / manifest).read_text())
    kind, job_name = job["kind"].lower(), job["metadata"]["name"]
    assert f"{kind}.kubeflow.org/{job_name} created" in kubectl(admin, "create", "-f", str(EXAMPLES / manifest))
    wanted = 6 if kind == "tfjob" else 3

    def running() -> list[dict[str, Any]]:
        return [pod for pod in pods_of(admin, job_name) if pod["status"].get("phase") == "Running"]

    served.until(lambda: len(running()) == wanted, "every pod runs", 60)
    served.until(lambda: "Running" in kubectl(admin, "get", kind, job_name), "the job says so")
    env = {e["name"]: e.get("value") for e in running()[-1]["spec"]["containers"][0]["env"]}
    assert ("TF_CONFIG" in env) if kind == "tfjob" else (env["WORLD_SIZE"] == "3")
    services = kubectl(admin, "get", "services", "-o", "name").split()
    assert any(job_name in service for service in services), "names that ranks find each other by"
    kubectl(admin, "delete", "pod", running()[0]["metadata"]["name"], "--wait=false")
    kubectl(admin, "delete", kind, job_name)
    served.until(lambda: not pods_of(admin, job_name), "its pods go with it")
    assert "Operator:    rowlock's" in served.run("rowlock", "status")
    assert "forbidden" not in served.last_words() and "Traceback" not in served.last_words()


@pytest.mark.real
def test_sets_and_trainjobs_run_without_their_controllers(served: Cluster, bare: Path, tmp_path: Path) -> None:
    """As kubectl sends them. Jobs are run by the cluster's own controller, pods by nodes that are played."""
    admin = Path((bare.parent / "admin").read_text())
    served.run("rowlock", "project", "create", "sets")

    def ask(*words: str) -> str:
        return kubectl(admin, "-n", "runai-sets", *words)

    def apply(obj: Object) -> str:
        (tmp_path / "obj.json").write_text(json.dumps(obj))
        return ask("apply", "-f", str(tmp_path / "obj.json"))

    def phases(selector: str) -> list[str]:
        pods = json.loads(ask("get", "pods", "-l", selector, "-o", "json"))["items"]
        return [pod["status"].get("phase", "") for pod in pods]

    def last_events(kind: str, of: str) -> str:
        fields = f"involvedObject.kind={kind},involvedObject.name={of}"
        return ask("get", "events", "--field-selector", fields, "-o", "jsonpath={.items[*].message}")

    runtimes = ("get", "clustertrainingruntimes", "-o", "name")
    served.until(lambda: "torch-distributed" in ask(*runtimes), "the runtimes that ship are made", 60)
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2, "image": "nothing:1"}}
    apply({**head, "metadata": {"name": "tj"}, "spec": spec})
    members = "jobset.sigs.k8s.io/jobset-name=tj"
    served.until(lambda: phases(members) == ["Running"] * 2, lambda: last_events("JobSet", "tj"), 60)
    variables = ask("get", "pods", "-l", members, "-o", "jsonpath={.items[0].spec.containers[0].env[*].name}")
    assert "PET_MASTER_ADDR" in variables.split()
    assert "Running" in served.run("rowlock", "list", "-p", "sets"), "it is one workload of rowlock's"
    ask("patch", "trainjob", "tj", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    served.until(lambda: not phases(members), "suspended, it has no pods", 60)
    served.until(lambda: "Suspended" in ask("get", "trainjob", "tj"), "and says so", 60)
    ask("patch", "trainjob", "tj", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    served.until(lambda: phases(members) == ["Running"] * 2, "it goes on", 60)
    ask("delete", "trainjob", "tj")
    served.until(lambda: not phases(members), "its pods go with it", 60)

    pods = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "main", "image": "nothing:1"}]}}
    job = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 1, "completions": 1, "template": pods}}}
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    apply({**head, "metadata": {"name": "js"}, "spec": {"replicatedJobs": [job]}})
    served.until(lambda: phases("app=w") == ["Running"] * 2, lambda: last_events("JobSet", "js"), 60)
    job_modes = (
        "get",
        "jobs",
        "-l",
        "jobset.sigs.k8s.io/jobset-name=js",
        "-o",
        "jsonpath={.items[*].spec.completionMode}",
    )
    assert ask(*job_modes) == "Indexed Indexed", "the defaults of a webhook that is not there"
    ask("delete", "jobset", "js")
    apply({**head, "metadata": {"name": "odd"}, "spec": {"replicatedJobs": [job], "managedBy": "me"}})
    served.until(lambda: "must be a domain-prefixed path" in last_events("JobSet", "odd"), "the refusal is told", 60)
    assert "forbidden" not in served.last_words() and "Traceback" not in served.last_words()


@pytest.mark.real
def test_a_set_is_a_gang_of_rowlocks_scheduler(bare: Path, tmp_path: Path) -> None:
    """Two nodes of four GPUs: of nine pods none starts, and eight of another set do."""
    admin = Path((bare.parent / "admin").read_text())
    with lent(tmp_path) as made:
        made.up("--kubeconfig", str(bare), "--operator", "own", "--scheduler", "own")
        made.run("rowlock", "project", "create", "gangs", "--gpus", "8")

        def ask(*words: str) -> str:
            return kubectl(admin, "-n", "runai-gangs", *words)

        def create(called: str, pods: int) -> None:
            container = {"name": "main", "image": "nothing:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            pod = {
                "metadata": {"labels": {"app": called}},
                "spec": {"schedulerName": "rowlock-scheduler", "containers": [container]},
            }
            job = {"name": "w", "template": {"spec": {"parallelism": pods, "completions": pods, "template": pod}}}
            head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": called}}
            (tmp_path / "set.json").write_text(json.dumps({**head, "spec": {"replicatedJobs": [job]}}))
            ask("create", "-f", str(tmp_path / "set.json"))

        def phases(called: str) -> list[str]:
            pods = json.loads(ask("get", "pods", "-l", f"app={called}", "-o", "json"))["items"]
            return [pod["status"].get("phase", "") for pod in pods]

        create("nine", 9)
        made.until(lambda: phases("nine") == ["Pending"] * 9, "its pods are there", 60)
        create("eight", 8)
        made.until(lambda: phases("eight") == ["Running"] * 8, made.last_words, 90)
        assert phases("nine") == ["Pending"] * 9
        ask("delete", "jobset", "nine", "eight")


@pytest.mark.real
def test_who_loses_the_lease_while_it_works_stops_and_goes_on_when_it_is_free(
    served: Cluster, bare: Path, tmp_path: Path
) -> None:
    """Somebody takes it by force, as a second process does whose cluster was cut in two: from then on jobs are his."""
    admin = Path((bare.parent / "admin").read_text())
    lease = ("lease", "rowlock-operator", "-n", "rowlock-system")
    served.until(lambda: "holds the Lease rowlock-system/rowlock-operator" in served.last_words(), "it leads")
    taken = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": micro_timestamp(time.time())}
    kubectl(admin, "patch", *lease, "--type=merge", "-p", json.dumps({"spec": taken}))
    served.until(lambda: "leads no longer" in served.last_words(), "it has seen that")
    container = {"name": "pytorch", "image": "nothing:1"}
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    job = {
        **pytorch_job(pytorchReplicaSpecs={"Master": replica}),
        "metadata": {"name": "waits", "namespace": "default"},
    }
    (tmp_path / "waits.json").write_text(json.dumps(job))
    kubectl(admin, "create", "-f", str(tmp_path / "waits.json"))
    assert "somebody" in served.run("rowlock", "status")
    assert not pods_of(admin, "waits"), "the job is not ours"
    kubectl(admin, "delete", *lease)
    served.until(lambda: len(pods_of(admin, "waits")) == 1, "it leads again, and sees what came meanwhile", 60)
    kubectl(admin, "delete", "pytorchjob", "waits")


@pytest.mark.real
def test_ours_stop_when_kubeflows_comes(bare: Path, tmp_path: Path) -> None:
    """A Deployment of its label is enough: its pods may start at any moment."""
    admin = Path((bare.parent / "admin").read_text())
    labels = {"control-plane": "kubeflow-training-operator"}
    container = {"name": "training-operator", "image": "kubeflow/training-operator:v1-855e096"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "training-operator", "namespace": "default", "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    (tmp_path / "operator.json").write_text(json.dumps(deployment))
    kubectl(admin, "apply", "-f", str(tmp_path / "operator.json"))
    try:
        with lent(tmp_path) as made:
            refusal = made.run("rowlock", "up", "-d", "--kubeconfig", str(bare), "--operator", "own", code=1)
        assert "default/training-operator" in refusal
    finally:
        kubectl(admin, "delete", "-f", str(tmp_path / "operator.json"))


def test_the_manifests_bring_the_kinds_and_the_rights() -> None:
    said = subprocess.run(
        [BIN / "rowlock", "manifests", "--operator", "own"], capture_output=True, text=True, check=True
    )
    made = [obj for obj in yaml.safe_load_all(said.stdout)]
    assert {"pytorchjobs.kubeflow.org", *(kind.resource for kind in kinds.TRAINER)} <= {name(obj) for obj in made}
    assert {"rowlock-operator", "rowlock-trainer"} <= {name(obj) for obj in made if obj["kind"] == "ClusterRole"}
