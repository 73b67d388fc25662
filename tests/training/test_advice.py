"""Hints beside the operator's refusals, and remarks on what it takes: each says something, and only where it is due."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rowlock.kinds import JAXJOB, MPIJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB, Kind
from rowlock.objects import Object
from rowlock.training.admission.advice import HINTS, hint_for, job_remarks, late_refusal
from rowlock.training.admission.group_advice import group_remarks
from rowlock.training.admission.webhooks import review_job
from rowlock.training.frameworks.registry import FRAMEWORKS


def pods(kind: Kind, count: Any = 1, policy: str = "", **container: Any) -> Object:
    main = {"name": FRAMEWORKS[kind].container, "image": "i", **container}
    made: Object = {"replicas": count, "template": {"spec": {"containers": [main]}}}
    return {**made, **({"restartPolicy": policy} if policy else {})}


def job(kind: Kind, name: str = "job", replicas: Object | None = None, **spec: Any) -> Object:
    return {"kind": kind.name, "metadata": {"name": name}, "spec": {FRAMEWORKS[kind].replicas: replicas or {}, **spec}}


REFUSED: list[tuple[Kind, Object, str]] = [
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"worker": pods(PYTORCHJOB)}), 'one of the types "Master", "Worker", with a capital'),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Worker": pods(PYTORCHJOB, name="main")}), "container pytorch"),
    (TFJOB, job(TFJOB, replicas={"Worker": pods(TFJOB, name="main")}), "container tensorflow"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Worker": pods(PYTORCHJOB, image="")}), "`image: rowlock.dev/host`"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Master": pods(PYTORCHJOB, 2)}), "more pods are Workers"),
    (XGBOOSTJOB, job(XGBOOSTJOB, replicas={"Worker": pods(XGBOOSTJOB)}), "Add the type that leads"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Worker": pods(PYTORCHJOB, 0)}), "Omit Worker for a job of one pod"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Master": pods(PYTORCHJOB)}, elasticPolicy={}), "add a Worker"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Worker": pods(PYTORCHJOB)}, nprocPerNode="2",
                     elasticPolicy={"nProcPerNode": 2}), 'a string: "2"'),
    (TFJOB, job(TFJOB, replicas={"Worker": pods(TFJOB)}, runPolicy={"managedBy": "me"}), "Leave managedBy out"),
    (TFJOB, job(TFJOB, "0-x", {"Worker": pods(TFJOB)}), "host names"),
    (TFJOB, job(TFJOB, replicas={"Chief": pods(TFJOB), "Master": pods(TFJOB)}), "keep Chief"),
    (TFJOB, {"metadata": {"name": "job"}, "spec": {}}, "Worker: {replicas: 2"),
    (JAXJOB, job(JAXJOB, replicas={"Worker": {"template": {"spec": {}}}}), "below `template.spec.containers`"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "obj", "text"), REFUSED, ids=[t for _, _, t in REFUSED])
def test_a_refusal_of_a_webhook_has_a_hint(kind: Kind, obj: Object, text: str) -> None:
    refused = review_job(kind, None, obj)
    assert refused.errors
    assert text in hint_for(refused.message)


SENTENCES = [
    ('strict decoding error: unknown field "spec.pytorchReplicaSpecs.Worker.replica"', "`replicas`"),
    ('PyTorchJob in version "v1" cannot be handled: unknown field "spec.replicaSpecs"', "`pytorchReplicaSpecs`"),
    ('MPIJob in version "v1" cannot be handled: unknown field "spec.replicaSpecs"', "`mpiReplicaSpecs`"),
    ('strict decoding error: unknown field "spec.zzz"', "remove it"),
    ("spec.runPolicy.managedBy: Invalid value: null: field is immutable", "create it again"),
    (".spec.x.Worker.replicas: Invalid value: -1: should be a non-negative integer", "not below 0"),
    ("spec.suspend in body must be of type boolean: ", "boolean"),
    ("something else", ""),
]


@pytest.mark.parametrize(("message", "text"), SENTENCES)
def test_hints_for_sentences_of_the_api_server(message: str, text: str) -> None:
    assert text in hint_for(message)
    assert bool(hint_for(message)) is bool(text)


LATE = [
    ({"Worker": pods(MPIJOB)}, "Master ReplicaSpec must be present"),
    ({"Launcher": pods(MPIJOB, 2)}, "There must be only 1 launcher replica"),
    ({"Launcher": pods(MPIJOB, image="")}, "Image is undefined"),
    ({"Launcher": pods(MPIJOB), "Boss": pods(MPIJOB)}, "MPIReplicaType is Boss"),
    ({"Launcher": {"template": {}}}, "containers definition expected"),
]


@pytest.mark.parametrize(("replicas", "text"), LATE)
def test_what_an_mpijob_is_refused_for_later_has_a_hint(replicas: Object, text: str) -> None:
    said = late_refusal(MPIJOB, job(MPIJOB, replicas=replicas))
    assert text in said and hint_for(said)


def test_every_hint_is_due_some_time() -> None:
    told = [review_job(kind, None, obj).message for kind, obj, _ in REFUSED]
    told += [message for message, _ in SENTENCES]
    told += [late_refusal(MPIJOB, job(MPIJOB, replicas=replicas)) for replicas, _ in LATE]
    assert [pattern for pattern, _ in HINTS if not any(re.search(pattern, message) for message in told)] == []


SURPRISES: list[tuple[Kind, Object, str]] = [
    (PYTORCHJOB, job(PYTORCHJOB), "without replicas"),
    (PYTORCHJOB, job(PYTORCHJOB, "x" * 56, {"Worker": pods(PYTORCHJOB)}), "the job's name may have 54"),
    (TFJOB, job(TFJOB, replicas={"Worker": pods(TFJOB, policy="Sometimes")}), "no pod can be made"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Master": pods(PYTORCHJOB, policy="Always")}), "never succeeds"),
    (XGBOOSTJOB, job(XGBOOSTJOB, replicas={"Master": pods(XGBOOSTJOB, policy="OnFailure")}), "also with OnFailure"),
    (TFJOB, job(TFJOB, replicas={"Worker": pods(TFJOB)}, runPolicy={"cleanPodPolicy": "Odd"}), "acts like All"),
    (TFJOB, job(TFJOB, replicas={"Worker": pods(TFJOB)}, runPolicy={"backoffLimit": 3}), "2 of them pass before"),
    (TFJOB, job(TFJOB, replicas={"Worker": pods(TFJOB, policy="ExitCode")}, runPolicy={"backoffLimit": 3}),
     "does not count retries"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Worker": pods(PYTORCHJOB, 2)}), "torchrun waits for ever"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Worker": pods(PYTORCHJOB)}, elasticPolicy={"standalone": True}),
     "PET_STANDALONE"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Worker": pods(PYTORCHJOB)},
                     elasticPolicy={"minReplicas": 3, "maxReplicas": 2}), "more than maxReplicas"),
    (PYTORCHJOB, job(PYTORCHJOB, replicas={"Master": pods(PYTORCHJOB, args=["--nnodes=${WORLD_SIZE}"])},
                     nprocPerNode="2"), "counts processes"),
    (TFJOB, job(TFJOB, replicas={"PS": pods(TFJOB)}), "add a Worker or a Chief"),
    (TFJOB, job(TFJOB, replicas={"PS": pods(TFJOB), "Worker": pods(TFJOB)}), "stay after the job"),
    (JAXJOB, job(JAXJOB, replicas={"Worker": pods(JAXJOB, ports=[{"containerPort": 1}])}), "name the ports of Worker"),
    (TFJOB, job(TFJOB, replicas={"Worker": pods(TFJOB, 2, ports=[{"name": "b", "containerPort": 1, "hostPort": 6006}])}),
     "each of 2 pods of Worker asks for port 6006 of its node"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "obj", "text"), SURPRISES, ids=[t for _, _, t in SURPRISES])
def test_what_is_admitted_and_surprises_is_said(kind: Kind, obj: Object, text: str) -> None:
    assert any(text in remark for remark in job_remarks(kind, obj))


@pytest.mark.parametrize("kind", [PYTORCHJOB, TFJOB, JAXJOB, XGBOOSTJOB, MPIJOB])
def test_a_plain_job_gives_no_cause_for_remarks(kind: Kind) -> None:
    types = {PYTORCHJOB: ("Master", "Worker"), XGBOOSTJOB: ("Master", "Worker"), MPIJOB: ("Launcher", "Worker")}
    replicas = {type_: pods(kind) for type_ in types.get(kind, ("Worker",))}
    assert job_remarks(kind, job(kind, replicas=replicas)) == []
    assert late_refusal(kind, job(kind, replicas=replicas)) == ""


def test_ranks_that_are_told_where_they_meet_need_no_master() -> None:
    told = pods(PYTORCHJOB, 2, env=[{"name": "MASTER_ADDR", "value": "job-worker-0"}])
    assert job_remarks(PYTORCHJOB, job(PYTORCHJOB, replicas={"Worker": told})) == []


@pytest.mark.parametrize(
    ("command", "is_warned_of"),
    [
        (["sh", "-c", "python t.py"], True),  # dash starts even the last command as a child
        (["sh", "-c", "cd /w && exec python t.py --lr 1;"], False),
        (["bash", "-c", "cd /w && python t.py"], False),  # bash becomes its last command
        (["/bin/bash", "-euo", "pipefail", "-c", "python t.py 2>&1 | tee log"], True),
        (["bash", "-c", "python t.py || true"], True),
        (["bash", "-c", "python t.py &\nwait"], True),
        (["bash", "-c", "trap 'kill $!' TERM; python t.py & wait"], False),
        (["bash", "-c", "python -c 'import a; b()'"], False),
        (["bash", "train.sh"], False),  # what is in it is not known
        (["python", "-c", "a; b"], False),
    ],
)
def test_a_shell_that_keeps_signals_from_its_program_is_named(command: list[str], is_warned_of: bool) -> None:
    made = pods(PYTORCHJOB)
    made["template"]["spec"]["containers"][0]["command"] = command
    remarks = job_remarks(PYTORCHJOB, job(PYTORCHJOB, replicas={"Master": made}))
    assert any("may not pass SIGTERM on" in text for text in remarks) == is_warned_of


NEEDS = "and the operator does not set it: add LOCAL_RANK=0, or start the program with torchrun"


@pytest.mark.parametrize(
    ("command", "program", "words"),
    [
        (["python", "train.py"], "import torch\nimport speechbrain as sb\n", f"SpeechBrain trains a copy in each pod where LOCAL_RANK is not set, {NEEDS}"),
        (["python", "train.py"], "    from mmengine.runner import Runner\n", NEEDS),
        (["python", "-c", "import ignite.distributed as idist; idist.Parallel"], "", f"Ignite's Parallel needs LOCAL_RANK, {NEEDS}"),
        (["sh", "-c", "cd /w && exec python -m composer.train"], "", "Composer needs LOCAL_RANK, LOCAL_WORLD_SIZE and NODE_RANK"),
        (["fabric", "run", "train.py"], "", "`fabric run` reads flags only"),
        (["composer", "train.py"], "", "composer's launcher reads flags"),
        (["sh", "-c", "FORCE_TORCHRUN=1 llamafactory-cli train a.yaml"], "", "set NNODES=$WORLD_SIZE and NODE_RANK=$RANK"),
        (["fabric", "run", "--num-nodes", "2", "train.py"], "", ""),
        (["sh", "-c", "NNODES=2 NODE_RANK=$RANK llamafactory-cli train"], "", ""),
        (["torchrun", "train.py"], "import speechbrain", ""),
        (["sh", "-c", "exec torchrun --nproc-per-node=2 train.py"], "import deepspeed", ""),
        (["sh", "-c", "LOCAL_RANK=0 python train.py"], "import deepspeed", ""),
        (["python", "train.py"], 'import deepspeed, os\nos.environ.setdefault("LOCAL_RANK", "0")', ""),
        (["python", "train.py"], "import torch  # not speechbrain\nimport composers\n", ""),
        (["python", "train.py"], "", ""),
    ],
)  # fmt: skip
def test_a_framework_that_needs_more_than_the_operator_sets_is_named(
    command: list[str], program: str, words: str
) -> None:
    made = job(
        PYTORCHJOB, replicas={"Master": pods(PYTORCHJOB, command=command), "Worker": pods(PYTORCHJOB, command=command)}
    )
    said = group_remarks(PYTORCHJOB, made, {"Master": program, "Worker": program})
    assert len(said) == bool(words) and words in "".join(said)
    alone = job(PYTORCHJOB, replicas={"Master": pods(PYTORCHJOB, command=command)})
    assert group_remarks(PYTORCHJOB, alone, {"Master": program}) == [], "one pod has nobody to meet"


def test_a_variable_of_the_manifest_is_enough() -> None:
    container: dict[str, Any] = {"command": ["python", "train.py"], "env": [{"name": "LOCAL_RANK", "value": "0"}]}
    made = job(PYTORCHJOB, replicas={"Master": pods(PYTORCHJOB, **container), "Worker": pods(PYTORCHJOB, **container)})
    assert group_remarks(PYTORCHJOB, made, {"Master": "import speechbrain"}) == []
    assert group_remarks(MPIJOB, job(MPIJOB, replicas={"Worker": pods(MPIJOB, 2)}), {}) == []
