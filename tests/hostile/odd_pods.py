"""Pods as an enemy would write them: odd words in every field that a kubelet reads, and programs that leave odd files.

Everything is drawn from one `Random`; the same seed makes the same pods. Most are admitted, some are refused: both are
fine. What is not fine is a server that ends, hangs, or does not run the next pod.
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any

WORDS = (
    "", " ", "a", "work", ".", "..", "../..", "/", "//", "/proc/self/fd/0", "a/../../b", "-rf", "--help", "${HOME}", "$(HOSTNAME)",
    "²", "٣", "１２", "1e999", "-1", "0", "9" * 40, "NaN", "null", "{}", "[]", "\u0000", "a\u0000b", "\u202e", "\ud7ff", "é" * 300,
    "x" * 5_000, "\n", "a\nb", "\r", "\x1b[2J", "%s%n", "*", "**/*", "[", "~root", "C:\\", "a=b", "127.0.0.1", "::1", "localhost",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 65_535, 65_536, 0o777, 0o7777)
NOBODY = 65_534
"""Who the programs run as: what an enemy without rights can do to a server with all of them."""
QUANTITIES = ("0", "1", "-1", "1e3", "1E", "9" * 30, "1n", "0.0000001", "1Ei", "16Ei", "²", "", " 1")
ANNOTATIONS = (
    "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "rowlock.dev/devices", "rowlock.dev/directory", "rowlock.dev/shell-environment",
    "rowlock.dev/limits", "rowlock.dev/max-runtime", "rowlock.dev/pretend-seconds", "rowlock.dev/request", "rowlock.dev/warm-start",
    "rowlock.dev/source", "rowlock.dev/workload-id", "scheduling.k8s.io/group-name", "kai.scheduler/queue", "pod-group-name",
    "cluster-autoscaler.kubernetes.io/safe-to-evict", "container.apparmor.security.beta.kubernetes.io/main",
)  # fmt: skip
ODD_FILES = (
    "rm -rf {path}; mkfifo {path}",
    "rm -rf {path}; mkdir -p {path}/a/b",
    "rm -rf {path}; ln -s /etc/shadow {path}",
    "rm -rf {path}; ln -s /dev/zero {path}",
    "rm -rf {path}; ln -s {path} {path}",
    "truncate -s 200G {path}",
    "printf '{{\"message\":[1]}}' > {path}",
    'printf \'{{"message":{{"message":1,"extraInfo":{{"timestamp":"x","py_callstack":[[]]}}}}}}\' > {path}',
    "printf '%s' 99999999999999999999999999 > {path}",
    "printf 'NaN' > {path}",
    "printf '\\377\\376\\000' > {path}",
    "head -c 300000 /dev/urandom > {path}",
    "head -c 200000 /dev/zero | tr '\\0' '[' > {path}",
    "chmod 000 {path}",
    "rm -rf {path}",
)
ODD_PLACES = (
    '"${TORCHELASTIC_ERROR_FILE:-/empty/e}"', "/dev/termination-log", '"${ROWLOCK_CHECKPOINT_DIR:-/empty/c}"', '"${ROWLOCK_CHECKPOINT_DIR:-/empty/c}"/latest',
    '/empty/y', "/odd/..data", "/odd/key", "/empty/x", '"$(dirname "${TORCHELASTIC_ERROR_FILE:-/empty/e}")"',
)  # fmt: skip
ENDS = (
    "exit 0",
    "exit 1",
    "exit 255",
    "kill -9 $$",
    "kill -11 $$",
    "exec sleep 1",
    "yes | head -c 3000000",
    "printf 'no newline'",
)


def draw_pod(dice: Random, name: str, mark: dict[str, str]) -> dict[str, Any]:
    """A pod with one to four oddities; `mark` is the environment that finds its processes again."""
    container: dict[str, Any] = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", _draw_program(dice)],
        "env": [{"name": key, "value": value} for key, value in mark.items()],
        "volumeMounts": [{"name": "odd", "mountPath": "/odd"}, {"name": "empty", "mountPath": "/empty"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": dice.choice(("Never", "OnFailure")),
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": NOBODY, "runAsGroup": NOBODY},
            "containers": [container],
            "volumes": [{"name": "odd", "configMap": {"name": "odd"}}, {"name": "empty", "emptyDir": {}}],
        },
    }
    for _ in range(dice.randint(1, 4)):
        dice.choice(_ODDITIES)(dice, pod, container)
    return pod


def draw_looks(dice: Random, mark: dict[str, str]) -> dict[str, Any]:
    """A patch that adds one to three ephemeral containers with an oddity or two each, as `kubectl debug` adds them."""
    looks = []
    for number in range(dice.randint(1, 3)):
        look: dict[str, Any] = {
            "name": f"look-{number}",
            "image": "host",
            "command": ["sh", "-c", _draw_program(dice)],
            "env": [{"name": key, "value": value} for key, value in mark.items()],
            "volumeMounts": [{"name": "odd", "mountPath": "/odd"}, {"name": "empty", "mountPath": "/empty"}],
        }
        spec: dict[str, Any] = {"volumes": [], "securityContext": {}}
        for _ in range(dice.randint(0, 2)):
            dice.choice((_odd_container, _odd_environment, _odd_command, _odd_sub_path))(dice, {"spec": spec}, look)
        if dice.random() < 0.5:
            look["targetContainerName"] = dice.choice(("main", "init", *WORDS))
        looks.append(look)
    return {"spec": {"ephemeralContainers": looks}}


def draw_job(dice: Random, name: str, mark: dict[str, str]) -> dict[str, Any]:
    """A PyTorchJob of one or two ranks whose programs leave odd files."""
    pod = draw_pod(dice, name, mark)
    pod["spec"].pop("restartPolicy", None)
    pod["spec"]["containers"][0]["name"] = "pytorch"
    template = {"metadata": {"annotations": pod["metadata"].get("annotations", {})}, "spec": pod["spec"]}
    one = {"replicas": 1, "restartPolicy": dice.choice(("Never", "OnFailure", "ExitCode")), "template": template}
    replicas = {"Master": one} | ({"Worker": copy.deepcopy(one)} if dice.random() < 0.5 else {})
    spec = {"runPolicy": {"backoffLimit": 1}, "pytorchReplicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


def draw_set(dice: Random, name: str, mark: dict[str, str]) -> dict[str, Any]:
    """A Job, a CronJob, a JobSet of one or two replicated jobs or a TrainJob, whose pods are odd and whose numbers sometimes are."""
    pod = draw_pod(dice, name, mark)
    pod["spec"]["restartPolicy"] = dice.choice(("Never", "OnFailure"))
    template = {"metadata": {"annotations": pod["metadata"].get("annotations", {})}, "spec": pod["spec"]}
    spec: dict[str, Any] = {"backoffLimit": 1, "parallelism": dice.randint(1, 2), "template": template}
    spec |= {"completions": spec["parallelism"], "completionMode": dice.choice(("Indexed", "NonIndexed"))}
    if dice.random() < 0.3:
        field = dice.choice(
            ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex")
        )
        spec[field] = dice.choice(NUMBERS)
    sort = dice.random()
    if sort < 0.3:
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    if sort < 0.45:
        return _draw_cron(dice, name, spec)
    if sort < 0.7:
        return _draw_train_job(dice, name, pod)
    jobs: list[dict[str, Any]] = [{"name": "a", "template": {"spec": spec}}]
    if dice.random() < 0.5:
        jobs.append({"name": dice.choice(("b", *WORDS)), "template": {"spec": copy.deepcopy(spec)}})
        if dice.random() < 0.5:
            jobs[1]["dependsOn"] = [{"name": dice.choice(("a", "b")), "status": dice.choice(("Ready", "Complete"))}]
    whole: dict[str, Any] = {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": dice.choice((0, 1))}}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": whole}


def _draw_cron(dice: Random, name: str, job: dict[str, Any]) -> dict[str, Any]:
    """A CronJob, mostly with a start in each second."""
    whole: dict[str, Any] = {"schedule": "@every 1s", "jobTemplate": {"spec": job}}
    if dice.random() < 0.3:
        whole["schedule"] = dice.choice(("* * * * *", "0 0 30 2 *", "@every 0s", "@every 1e9h", *WORDS))
    if dice.random() < 0.3:
        whole["timeZone"] = dice.choice(("Etc/UTC", *WORDS))
    field = dice.choice(("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"))
    if dice.random() < 0.3:
        whole[field] = dice.choice(NUMBERS)
    whole["concurrencyPolicy"] = dice.choice(("Allow", "Forbid", "Replace"))
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": whole}


def _draw_train_job(dice: Random, name: str, pod: dict[str, Any]) -> dict[str, Any]:
    """A TrainJob whose patches bring the odd parts of the pod, as far as patches may have them."""
    work = {**pod["spec"]["containers"][0], "name": "node"}
    fields = ("image", "command", "args", "env")
    trainer: dict[str, Any] = {field: work[field] for field in fields if field in work}
    trainer["numNodes"] = dice.choice((1, 1, 2, 0, -1, 2**31 - 1, 2**63 - 1))  # hundreds of pods are another test's
    if dice.random() < 0.3:
        trainer["numProcPerNode"] = dice.choice(NUMBERS)
    if dice.random() < 0.3:
        trainer["resourcesPerNode"] = {"limits": {dice.choice(("cpu", *WORDS)): dice.choice(QUANTITIES)}}
    allowed = ("volumes", "initContainers", "securityContext", "serviceAccountName", "terminationGracePeriodSeconds")
    patched = {field: pod["spec"][field] for field in allowed if field in pod["spec"]}
    patched["containers"] = [{"name": "node", "volumeMounts": work["volumeMounts"]}]
    template = {"metadata": {"annotations": pod["metadata"].get("annotations", {})}, "spec": patched}
    job = {"name": "node", "template": {"spec": {"template": template}}}
    patch = {"manager": "odd.example/x", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    runtime = dice.choice(("torch-distributed", "jax-distributed", "xgboost-distributed", "deepspeed-distributed"))
    spec: dict[str, Any] = {"runtimeRef": {"name": runtime}, "trainer": trainer, "runtimePatches": [patch]}
    if dice.random() < 0.2:
        spec[dice.choice(("initializer", "activeDeadlineSeconds", "suspend", "managedBy"))] = dice.choice(
            ({"dataset": {"storageUri": dice.choice(WORDS)}}, True, *NUMBERS, *WORDS)
        )
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    return {**head, "metadata": {"name": name}, "spec": spec}


def _draw_program(dice: Random) -> str:
    steps = [dice.choice(ODD_FILES).format(path=dice.choice(ODD_PLACES)) for _ in range(dice.randint(0, 3))]
    return "\n".join(["cd /empty || exit 9", *steps, dice.choice(ENDS)])


def _odd_annotation(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    annotations = pod["metadata"].setdefault("annotations", {})
    annotations[dice.choice(ANNOTATIONS)] = dice.choice((*WORDS, *QUANTITIES, '{"a":[1]}'))


def _odd_volume(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    word = dice.choice(WORDS)
    source: dict[str, Any] = dice.choice(
        (
            {"hostPath": {"path": word}},
            {"hostPath": {"path": "/tmp", "type": word}},
            {"configMap": {"name": "odd", "items": [{"key": "key", "path": word}], "optional": True}},
            {"configMap": {"name": "odd", "defaultMode": dice.choice(NUMBERS)}},
            {"emptyDir": {"sizeLimit": dice.choice(QUANTITIES), "medium": dice.choice(("", "Memory", word))}},
            {"persistentVolumeClaim": {"claimName": word}},
            {"downwardAPI": {"items": [{"path": word, "fieldRef": {"fieldPath": f"metadata.annotations['{word}']"}}]}},
            {"projected": {"sources": [{"configMap": {"name": "odd", "items": [{"key": "key", "path": word}]}}]}},
        )
    )
    pod["spec"]["volumes"].append({"name": "drawn", **source})
    container["volumeMounts"].append(
        {"name": "drawn", "mountPath": dice.choice(("/drawn", word)), "subPath": dice.choice(("", word, "a/b"))}
    )


def _odd_sub_path(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    mount = {"name": "empty", "mountPath": "/sub", dice.choice(("subPath", "subPathExpr")): dice.choice(WORDS)}
    container["volumeMounts"].append(mount)


def _odd_container(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    field = dice.choice(("workingDir", "name", "image", "terminationMessagePath", "terminationMessagePolicy"))
    container[field] = dice.choice(("FallbackToLogsOnError", *WORDS))


def _odd_environment(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    container["env"].append({"name": dice.choice(("PATH", "LD_PRELOAD", "A", *WORDS)), "value": dice.choice(WORDS)})


def _odd_command(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    container["command"] = [dice.choice(WORDS) for _ in range(dice.randint(1, 3))]
    container["args"] = [dice.choice(WORDS)] * dice.choice((0, 1, 2_000))


def _odd_resources(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    name = dice.choice(("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi", "odd.example/x"))
    container["resources"] = {dice.choice(("limits", "requests")): {name: dice.choice(QUANTITIES)}}


def _odd_probe(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    handler: dict[str, Any] = dice.choice(
        (
            {"exec": {"command": [dice.choice(WORDS)]}},
            {
                "httpGet": {
                    "path": dice.choice(WORDS),
                    "port": dice.choice((1, 80, "name", 0)),
                    "host": dice.choice(WORDS),
                }
            },
            {"tcpSocket": {"port": dice.choice(NUMBERS)}},
        )
    )
    number = dice.choice(("periodSeconds", "timeoutSeconds", "failureThreshold", "initialDelaySeconds"))
    probe = {**handler, number: dice.choice(NUMBERS)}
    container[dice.choice(("livenessProbe", "readinessProbe", "startupProbe"))] = probe


def _odd_hook(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    command = [dice.choice(("sh", *WORDS)), "-c", dice.choice(("exit 3", "kill -9 $PPID", *WORDS))]
    container["lifecycle"] = {dice.choice(("postStart", "preStop")): {"exec": {"command": command}}}


def _odd_security(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    field = dice.choice(("runAsUser", "runAsGroup", "fsGroup"))
    number = dice.choice((*NUMBERS[1:], 1000, 65_534))  # never 0: root could do anything to the machine
    pod["spec"]["securityContext"][field] = number


def _odd_number(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    field = dice.choice(("terminationGracePeriodSeconds", "activeDeadlineSeconds", "priority"))
    pod["spec"][field] = dice.choice(NUMBERS)


def _odd_names(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    word = dice.choice(WORDS)
    odd: dict[str, Any] = dice.choice(
        (
            {"hostname": word},
            {"subdomain": word},
            {"hostAliases": [{"ip": word, "hostnames": [word]}]},
            {
                "dnsConfig": {"nameservers": [word], "searches": [word], "options": [{"name": word}]},
                "dnsPolicy": "None",
            },
            {"nodeName": word},
            {"serviceAccountName": word},
            {"schedulerName": word},
            {"priorityClassName": word},
            {"runtimeClassName": word},
        )
    )
    pod["spec"].update(odd)


def _odd_init_container(dice: Random, pod: dict[str, Any], container: dict[str, Any]) -> None:
    init = {
        "name": dice.choice(("work", "init", "main")),
        "image": "host",
        "command": ["sh", "-c", _draw_program(dice)],
    }
    pod["spec"]["initContainers"] = [init]


_ODDITIES = (
    _odd_annotation,
    _odd_volume,
    _odd_volume,
    _odd_sub_path,
    _odd_container,
    _odd_environment,
    _odd_command,
    _odd_resources,
    _odd_probe,
    _odd_hook,
    _odd_security,
    _odd_number,
    _odd_names,
    _odd_init_container,
)
