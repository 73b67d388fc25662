"""Random jobs of all six kinds: mostly plain, often with one odd thing, sometimes wrong.

`job` draws a manifest; everything comes from the dice, so a seed names a job for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Manifest = dict[str, Any]
NAME = "job"

SHAPE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    "TFJob": ("tfReplicaSpecs", "tensorflow", ("Chief", "Master", "PS", "Worker", "Evaluator")),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", ("Master", "Worker")),
    "MPIJob": ("mpiReplicaSpecs", "mpi", ("Launcher", "Worker")),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", ("Master", "Worker")),
    "JAXJob": ("jaxReplicaSpecs", "jax", ("Worker",)),
}
"""kind: field of the replica specs, main container, replica types."""

PORTS = {"PyTorchJob": "pytorchjob-port", "TFJob": "tfjob-port", "XGBoostJob": "xgboostjob-port", "PaddleJob": "master",
         "JAXJob": "jaxjob-port"}  # fmt: skip
TOPOLOGIES: dict[str, tuple[str, ...]] = {
    "PyTorchJob": ("Master:1 Worker:2", "Master:1 Worker:1", "Worker:2", "Worker:3", "Master:1"),
    "TFJob": (
        "PS:1 Worker:2", "Chief:1 Worker:2", "Worker:2", "Chief:1 PS:1 Worker:1", "Worker:1", "Master:1 Worker:1",
        "Chief:1 Evaluator:1 Worker:1", "PS:2", "Evaluator:1 Worker:2", "Chief:2 Worker:1",
    ),
    "XGBoostJob": ("Master:1 Worker:2", "Master:1 Worker:1", "Master:1"),
    "MPIJob": ("Launcher:1 Worker:2", "Launcher:1 Worker:1", "Launcher:1", "Launcher:1 Worker:0"),
    "PaddleJob": ("Worker:2", "Master:1 Worker:2", "Master:2 Worker:1", "Worker:1", "Master:1"),
    "JAXJob": ("Worker:2", "Worker:1", "Worker:3"),
}  # fmt: skip
RESTARTS = ("OnFailure", "Never", "ExitCode", "Always")
KUBEFLOW = "kubeflow.org/training-operator"


def chance(dice: Random, share: float) -> bool:
    return dice.random() < share


def replicas_of(manifest: Manifest) -> dict[str, Any]:
    """The replica specs of a job; {} where they are missing or not a map."""
    spec = manifest.get("spec") or {}
    found = spec.get(SHAPE[manifest["kind"]][0])
    return found if isinstance(found, dict) else {}


def job(dice: Random, wrong: bool) -> Manifest:
    """A manifest; a wrong one has something that the API server, a webhook or the operator refuses."""
    kind = dice.choice(tuple(SHAPE))
    field = SHAPE[kind][0]
    given = dict(part.split(":") for part in dice.choice(TOPOLOGIES[kind]).split())
    common = dice.choice(RESTARTS) if chance(dice, 0.6) else ""
    replicas = {type_: _replica(dice, kind, type_, int(count), common) for type_, count in given.items()}
    spec: Manifest = {field: replicas}
    if chance(dice, 0.6):
        spec["runPolicy"] = _run_policy(dice)
    spec |= SPECIAL[kind](dice, replicas)
    made: Manifest = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": NAME}, "spec": spec}
    if chance(dice, 0.15):
        made["metadata"]["labels"] = {"team": "a"}
        made["metadata"]["annotations"] = {"note": "x"}
    if wrong:
        dice.choice(WRONG)(dice, made)
    return made


def _replica(dice: Random, kind: str, type_: str, count: int, common: str) -> Manifest:
    made: Manifest = {"replicas": count, "template": _template(dice, kind)}
    if type_ not in ("Master", "Worker") and count == 1 and chance(dice, 0.1):
        del made["replicas"]
    policy = dice.choice(RESTARTS) if chance(dice, 0.1) else common
    if policy:
        made["restartPolicy"] = policy
    return made


def _template(dice: Random, kind: str) -> Manifest:
    container: Manifest = {"name": SHAPE[kind][1], "image": "img"}
    spec: Manifest = {"containers": [container]}
    made: Manifest = {"spec": spec}
    for share, change in ODDITIES:
        if chance(dice, share):
            change(dice, kind, made, container)
    return made


# ---------------------------------------------------------------- odd templates


def _sidecar(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    other = {"name": "sidecar", "image": "img", "env": [{"name": "A", "value": "1"}]}
    template["spec"]["containers"].insert(dice.choice((0, 1)), other)


def _environment(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    name = dice.choice(("RANK", "TF_CONFIG", "MASTER_ADDR", "MINE", "I_MPI_HYDRA_BOOTSTRAP", "PADDLE_NNODES"))
    container["env"] = [{"name": name, "value": "own"}, {"name": "LAST", "value": "$(MINE)"}]


def _ports(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    own = {"name": PORTS.get(kind, "mpi-port"), "containerPort": 4711}
    container["ports"] = dice.choice(
        ([own], [{"name": "web", "containerPort": 80}], [own, {"name": "web", "containerPort": 80}])
    )  # fmt: skip


def _init(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    template["spec"]["initContainers"] = [{"name": "first", "image": "img", "command": ["true"]}]


def _metadata(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    template["metadata"] = {
        "labels": {"app": "x", dice.choice(("tier", "training.kubeflow.org/replica-index")): "y"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        **({"name": "ignored", "namespace": "ignored"} if chance(dice, 0.2) else {}),
        **({"finalizers": ["example.com/wait"]} if chance(dice, 0.1) else {}),
    }


def _own_restart(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    template["spec"]["restartPolicy"] = dice.choice(RESTARTS[:2])


def _command(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    container["command"] = ["python", "train.py"]
    container["args"] = ["--epochs", "3"]
    container["workingDir"] = "/work"
    container["imagePullPolicy"] = dice.choice(("Always", "Never", "IfNotPresent"))
    if chance(dice, 0.3):
        container["envFrom"] = [{"configMapRef": {"name": "settings", "optional": True}}]


def _resources(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    limits = dice.choice(
        ({"cpu": "1"}, {"nvidia.com/gpu": 1}, {"cpu": "500m", "memory": "1Gi"}, {"example.com/gpu-x": 2})
    )
    container["resources"] = {"limits": limits}


def _volumes(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    template["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]


def _placement(dice: Random, kind: str, template: Manifest, container: Manifest) -> None:
    template["spec"] |= dice.choice(
        ({"nodeSelector": {"disk": "ssd"}}, {"hostNetwork": False, "dnsPolicy": "Default"},
         {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, {"terminationGracePeriodSeconds": 5},
         {"schedulerName": "other"}, {"hostname": "h", "subdomain": "s"}, {"automountServiceAccountToken": False},
         {"serviceAccountName": "default"}, {"securityContext": {"runAsUser": 1000}}, {"hostNetwork": True},
         {"imagePullSecrets": [{"name": "key"}]}, {"enableServiceLinks": False}, {"shareProcessNamespace": True})
    )  # fmt: skip


Oddity = Callable[[Random, str, Manifest, Manifest], None]
ODDITIES: tuple[tuple[float, Oddity], ...] = (
    (0.1, _sidecar), (0.12, _environment), (0.1, _ports), (0.07, _init), (0.1, _metadata), (0.06, _own_restart),
    (0.12, _command), (0.1, _resources), (0.06, _volumes), (0.08, _placement),
)  # fmt: skip


# ---------------------------------------------------------------- policies


def _run_policy(dice: Random) -> Manifest:
    made: Manifest = {}
    if chance(dice, 0.6):
        made["cleanPodPolicy"] = dice.choice(("None", "Running", "All", "All", "Running", "Odd"))
    if chance(dice, 0.15):
        made["ttlSecondsAfterFinished"] = dice.choice((0, 1, 3600))
    if chance(dice, 0.3):
        made["backoffLimit"] = dice.choice((0, 1, 2, 3, -1))
    if chance(dice, 0.1):
        made["activeDeadlineSeconds"] = 3600
    if chance(dice, 0.15):
        made["suspend"] = chance(dice, 0.7)
    if chance(dice, 0.06):
        made["managedBy"] = dice.choice((KUBEFLOW, "kueue.x-k8s.io/multikueue"))
    if chance(dice, 0.15):
        made["schedulingPolicy"] = dice.choice(
            ({"minAvailable": 1}, {"queue": "q"}, {"queue": "q", "priorityClass": "high"}, {"minResources": {"cpu": 1}})
        )
    return made


def _pytorch(dice: Random, replicas: Manifest) -> Manifest:
    made: Manifest = {}
    if chance(dice, 0.25):
        made["nprocPerNode"] = dice.choice(
            ("2", "auto", "gpu", "cpu", "x", "+3", "08", "-1", "99999999999999999999", "3000000000")
        )
    if chance(dice, 0.25):
        policy: Manifest = dice.choice(
            ({}, {"minReplicas": 1}, {"maxReplicas": 4}, {"minReplicas": 1, "maxReplicas": 3}, {"minReplicas": 5})
        )
        extra = {
            "rdzvBackend": "etcd", "rdzvPort": 99, "rdzvHost": "h", "rdzvId": "id", "maxRestarts": 3, "nProcPerNode": 2,
            "standalone": True, "rdzvConf": [{"key": "a", "value": "b"}, {"key": "c", "value": "d"}],
        }  # fmt: skip
        for key in dice.sample(sorted(extra), dice.choice((0, 0, 1, 2))):
            policy = {**policy, key: extra[key]}
        if chance(dice, 0.15) and "Worker" in replicas:  # within its bounds, or the autoscaler itself moves the job
            goal = {"type": "Utilization", "averageUtilization": 80}
            metric = {"type": "Resource", "resource": {"name": "cpu", "target": goal}}
            policy = {"minReplicas": 1, "maxReplicas": 4, "metrics": [metric]}
        made["elasticPolicy"] = policy
    return made


def _tensorflow(dice: Random, replicas: Manifest) -> Manifest:
    made: Manifest = {}
    if chance(dice, 0.25):
        made["successPolicy"] = dice.choice(("AllWorkers", "AllWorkers", "", "Odd"))
    if chance(dice, 0.15):
        made["enableDynamicWorker"] = True
    if chance(dice, 0.08):
        type_ = dice.choice(sorted(replicas))
        replicas[dice.choice((type_.lower(), type_.upper(), "Odd"))] = replicas.pop(type_)
    return made


def _mpi(dice: Random, replicas: Manifest) -> Manifest:
    made: Manifest = {}
    if chance(dice, 0.3):
        made["slotsPerWorker"] = dice.choice((1, 2, 4))
    if chance(dice, 0.15):
        made["cleanPodPolicy"] = dice.choice(("All", "Running"))
    if chance(dice, 0.1):
        made["mainContainer"] = "mpi"
    return made


def _paddle(dice: Random, replicas: Manifest) -> Manifest:
    return {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}} if chance(dice, 0.15) else {}


def _nothing(dice: Random, replicas: Manifest) -> Manifest:
    return {}


SPECIAL: dict[str, Callable[[Random, Manifest], Manifest]] = {
    "PyTorchJob": _pytorch, "TFJob": _tensorflow, "MPIJob": _mpi, "PaddleJob": _paddle, "XGBoostJob": _nothing,
    "JAXJob": _nothing,
}  # fmt: skip


# ---------------------------------------------------------------- wrong jobs


def _some_replica(dice: Random, made: Manifest) -> Manifest:
    replicas = replicas_of(made)
    found: Manifest = replicas[dice.choice(sorted(replicas))]
    return found


def _containers(dice: Random, made: Manifest) -> list[Manifest]:
    found: list[Manifest] = _some_replica(dice, made)["template"]["spec"]["containers"]
    return found


def _no_main(dice: Random, made: Manifest) -> None:
    for container in _containers(dice, made):
        container["name"] = f"other-{container['name']}"


def _no_image(dice: Random, made: Manifest) -> None:
    dice.choice(_containers(dice, made)).pop("image")


def _no_containers(dice: Random, made: Manifest) -> None:
    _some_replica(dice, made)["template"]["spec"] = dice.choice(({"containers": []}, {}))


def _bad_number(dice: Random, made: Manifest) -> None:
    below = (-1,) if made["kind"] in ("PyTorchJob", "JAXJob") else ()  # others let it through: see the docs
    wrong = (2, "two", 1.5, None, *below)
    _some_replica(dice, made)["replicas"] = dice.choice(wrong)


def _bad_type(dice: Random, made: Manifest) -> None:
    replicas = replicas_of(made)
    replicas[dice.choice(("Odd", "worker", "Chief", "Launcher"))] = replicas[dice.choice(sorted(replicas))]


def _no_map(dice: Random, made: Manifest) -> None:
    field = SHAPE[made["kind"]][0]
    made["spec"][field] = dice.choice((None, {}, [], "x", {"Worker": None}))


def _bad_name(dice: Random, made: Manifest) -> None:
    made["metadata"]["name"] = dice.choice(("0-job", "a.b", "Upper", "job-", "x" * 58, "x" * 64, "a_b"))


def _bad_manager(dice: Random, made: Manifest) -> None:
    made["spec"].setdefault("runPolicy", {})["managedBy"] = dice.choice(("somebody", ""))


def _bad_policy(dice: Random, made: Manifest) -> None:
    key, value = dice.choice(
        (("backoffLimit", "three"), ("suspend", "yes"), ("cleanPodPolicy", 3), ("ttlSecondsAfterFinished", 1.5),
         ("backofLimit", 3), ("schedulingPolicy", {"minAvailable": "x"}), ("activeDeadlineSeconds", 2**70))
    )  # fmt: skip
    made["spec"].setdefault("runPolicy", {})[key] = value


def _bad_restart(dice: Random, made: Manifest) -> None:
    _some_replica(dice, made)["restartPolicy"] = dice.choice(("Sometimes", 3))


def _bad_template(dice: Random, made: Manifest) -> None:
    spec = _some_replica(dice, made)["template"]["spec"]
    spec |= dice.choice(
        ({"volumes": [{"name": "v"}, {"name": "v"}]}, {"serviceAccountName": "nobody"}, {"restartPolicy": "Odd"},
         {"priorityClassName": "nowhere"}, {"volumes": [{"name": "V_"}]}, {"nodeName": 3}, {"contaners": []},
         {"terminationGracePeriodSeconds": "x"}, {"dnsPolicy": "Odd"}, {"hostname": "Not_One"})
    )  # fmt: skip


def _bad_container(dice: Random, made: Manifest) -> None:
    dice.choice(_containers(dice, made)).update(
        dice.choice(
            ({"env": [{"value": "x"}]}, {"env": [{"name": "A", "value": 3}]}, {"ports": [{"name": "p"}]},
             {"resources": {"limits": {"cpu": "lots"}}}, {"imagePullPolicy": "Odd"}, {"command": "python train.py"},
             {"ports": [{"containerPort": 99999}]}, {"ports": [{"containerPort": 90}]}, {"volumeMounts": [{"name": "no", "mountPath": "/no"}]},
             {"resources": {"limits": {"cpu": 1}, "requests": {"cpu": 2}}}, {"name": "Not_One"})
        )
    )  # fmt: skip


def _special(dice: Random, made: Manifest) -> None:
    made["spec"] |= {
        "PyTorchJob": {"nprocPerNode": 2, "elasticPolicy": {"nProcPerNode": 2}},
        "TFJob": {"successPolicy": 3},
        "MPIJob": {"slotsPerWorker": "two"},
        "PaddleJob": {"elasticPolicy": {"minReplicas": "x"}},
        "XGBoostJob": {"nprocPerNode": "2"},
        "JAXJob": {"elasticPolicy": {}},
    }[made["kind"]]


WRONG: tuple[Callable[[Random, Manifest], None], ...] = (
    _no_main, _no_image, _no_containers, _bad_number, _bad_type, _no_map, _bad_name, _bad_manager, _bad_policy,
    _bad_restart, _bad_template, _bad_container, _special,
)  # fmt: skip
