"""Through kubectl, too, a project's jobs use the project's queue: by labels, by the job's policy, by a patched PodGroup."""

from __future__ import annotations

from typing import Any

from tests.rest.test_tenants import GUEST, MARK, MINE, OWNER, THEIRS, Tenancy, play

from rowlock import kinds
from rowlock.system.unix_accounts import UNIX_ACCOUNT_ANNOTATION

SPACE, QUEUE, FOREIGN = f"runai-{MINE}-plain", f"{MINE}-plain", f"{THEIRS}-{MARK}"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
GROUPS = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{SPACE}/podgroups"
JOBS = f"/apis/kubeflow.org/v1/namespaces/{SPACE}/pytorchjobs"
EDITOR = "editor" * 8


def pod(name: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": {"containers": [{"name": "main", "image": "none"}]}}


def job(name: str, queue: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}
    policy = {"schedulingPolicy": {"queue": queue}, "suspend": True}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}},
    }  # fmt: skip


def editor_binding(role: str) -> dict[str, Any]:
    return {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": kinds.ROLE.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": "editor", "apiGroup": kinds.ROLE.group}],
    }


def test_an_editor_names_no_queue_of_another_project() -> None:
    async def check(tenancy: Tenancy) -> None:
        for token in (EDITOR, GUEST):
            for body in (
                pod("labelled", labels={"kai.scheduler/queue": FOREIGN}),
                pod("labelled", labels={"runai/queue": FOREIGN}),
                pod("noted", annotations={"rowlock.dev/devices": "0"}),
            ):
                answer = await tenancy.ask(token, "POST", PODS, body)
                assert answer.status_code == 403 and "leave" in answer.json()["message"], answer.text
            answer = await tenancy.ask(token, "POST", JOBS, job("policy", FOREIGN))
            assert answer.status_code == 403 and f'names the queue "{FOREIGN}"' in answer.json()["message"], answer.text
        assert (await tenancy.ask(EDITOR, "POST", PODS, pod("own", labels={"runai/queue": QUEUE}))).status_code == 201
        merge = {"content_type": "application/merge-patch+json"}
        relabelled = {"metadata": {"labels": {"runai/queue": FOREIGN}}}
        assert (await tenancy.ask(EDITOR, "PATCH", f"{PODS}/own", relabelled, **merge)).status_code == 403
        group = {"metadata": {"name": "pg", "namespace": SPACE}, "spec": {"minMember": 1, "queue": QUEUE}}
        await tenancy.store.create(kinds.POD_GROUP, group)
        for token, code in ((EDITOR, 403), (OWNER, 200)):
            answer = await tenancy.ask(token, "PATCH", f"{GROUPS}/pg", {"spec": {"queue": FOREIGN}}, **merge)
            assert answer.status_code == code, answer.text

    play(check)


def makers(name: str, queue: str) -> list[tuple[kinds.Kind, dict[str, Any]]]:
    """Objects from which controllers make pods that name the queue."""
    labelled: dict[str, Any] = {"metadata": {"labels": {"kai.scheduler/queue": queue}}}
    pods = {**labelled, "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    job_spec = {"suspend": True, "template": pods}
    jobset_spec = {"suspend": True, "replicatedJobs": [{"name": "r", "template": {"spec": job_spec}}]}
    patch = {"manager": "example.com/m", "trainingRuntimeSpec": {"template": labelled}}
    found: list[tuple[kinds.Kind, dict[str, Any]]] = [
        (kinds.BATCH_JOB, job_spec),
        (kinds.CRON_JOB, {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job_spec}}),
        (kinds.JOB_SET, jobset_spec),
        (kinds.TRAINING_RUNTIME, {"template": {"spec": jobset_spec}}),
        (kinds.TRAIN_JOB, {"suspend": True, "runtimeRef": {"name": "torch-distributed"}, "runtimePatches": [patch]}),
    ]
    return [
        (kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec})
        for kind, spec in found
    ]


def test_nor_by_what_controllers_make_jobs_and_pods_of() -> None:
    async def check(tenancy: Tenancy) -> None:
        for (kind, foreign), (_, own) in zip(makers("foreign", FOREIGN), makers("own", QUEUE), strict=True):
            path = f"/apis/{kind.group}/{kind.version}/namespaces/{SPACE}/{kind.plural}"
            answer = await tenancy.ask(EDITOR, "POST", path, foreign)
            assert answer.status_code == 403 and f'names the queue "{FOREIGN}"' in answer.json()["message"], answer.text
            answer = await tenancy.ask(EDITOR, "POST", path, own)
            assert "names the queue" not in answer.text, answer.text
            if kind not in kinds.TRAINER:
                assert answer.status_code == 201, answer.text
                relabelled = {"metadata": {"labels": {"runai/queue": FOREIGN}}}
                merge = {"content_type": "application/merge-patch+json"}
                answer = await tenancy.ask(EDITOR, "PATCH", f"{path}/own", relabelled, **merge)
                assert answer.status_code == 403, answer.text

    play(check)


def test_who_may_use_a_queue_names_it() -> None:
    async def check(tenancy: Tenancy) -> None:
        rule = {"apiGroups": [kinds.QUEUE.group], "resources": ["queues"], "verbs": ["use"], "resourceNames": [FOREIGN]}
        await tenancy.store.create(kinds.CLUSTER_ROLE, {"metadata": {"name": "guest-of-theirs"}, "rules": [rule]})
        await tenancy.store.create(kinds.CLUSTER_ROLE_BINDING, editor_binding("guest-of-theirs"))
        assert (await tenancy.ask(EDITOR, "POST", JOBS, job("guest", FOREIGN))).status_code == 201
        assert (await tenancy.ask(EDITOR, "POST", JOBS, job("guest-2", "another"))).status_code == 403

    play(check)


def test_the_owner_alone_says_as_whom_a_namespace_runs() -> None:
    """Whoever may write namespaces could otherwise run pods as another user of the machine."""

    async def check(tenancy: Tenancy) -> None:
        rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create", "patch", "update"]}
        await tenancy.store.create(kinds.CLUSTER_ROLE, {"metadata": {"name": "spaces"}, "rules": [rule]})
        await tenancy.store.create(kinds.CLUSTER_ROLE_BINDING, editor_binding("spaces"))
        path, merge = f"/api/v1/namespaces/{SPACE}", {"content_type": "application/merge-patch+json"}
        named = {"metadata": {"annotations": {UNIX_ACCOUNT_ANNOTATION: "other uid=1234 gid=1234 groups=1234"}}}
        answer = await tenancy.ask(EDITOR, "PATCH", path, named, **merge)
        assert answer.status_code == 403 and "only the cluster's owner" in answer.json()["message"], answer.text
        new = {"metadata": {"name": "fresh", **named["metadata"]}}
        assert (await tenancy.ask(EDITOR, "POST", "/api/v1/namespaces", new)).status_code == 403
        assert (
            await tenancy.ask(EDITOR, "PATCH", path, {"metadata": {"labels": {"a": "b"}}}, **merge)
        ).status_code == 200
        assert (await tenancy.ask(OWNER, "PATCH", path, named, **merge)).status_code == 200

    play(check)
