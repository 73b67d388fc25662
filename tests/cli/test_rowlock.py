"""`rowlock`'s verbs on jobs and projects, and what they say when something is wrong."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path

import pytest
from tests.rest.served import NOW, Served, call

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.cli import client
from rowlock.cli.commands.tree import ROOT as ROWLOCK
from rowlock.cli.grammar import Command, CommandError, CommandLine, Group, flags_of, help_of
from rowlock.cli.output import format_memory
from rowlock.cli.run.following import ProgressReporter
from rowlock.cli.run.request import launch_command
from rowlock.cli.runai_tree import ROOT as RUNAI
from rowlock.cli.server_json import read_server_json
from rowlock.cli.start.settings import check_same_settings, restart_command
from rowlock.errors import NotFound
from rowlock.objects import uid
from rowlock.workloads import history
from rowlock.workloads.projects import Project
from rowlock.workloads.runai_json import Workload

SUBMIT = "runai submit-dist pytorch t1 --workers=1 -i img"


def test_list_describe_wait_delete(served: Served) -> None:
    served.node("a")
    assert served.ok("rowlock list") == "No jobs in project default.\n"
    served.ok(SUBMIT)
    served.bound(2)
    served.run_pods()
    assert served.ok("rowlock wait t1 --for=running --timeout 60s") == "Job t1 is running.\n"
    header, row = served.ok("rowlock list").splitlines()
    assert header.split() == ["NAME", "FRAMEWORK", "PHASE", "PODS", "GPUS", "AGE", "WHY"]
    assert row.split()[:5] == ["t1", "PyTorch", "Running", "2/2", "0"]
    assert json.loads(served.ok("rowlock list --json"))[0]["name"] == "t1"
    text = served.ok("rowlock describe t1")
    assert "Phase:          Running" in text and "t1-worker-0" in text and "Events:" in text
    served.finish()
    assert served.ok("rowlock wait t1 --timeout 60s") == "Job t1 is completed.\n"
    assert json.loads(served.ok("rowlock describe t1 --json"))["phase"] == "Completed"
    assert served.ok("rowlock delete t1") == "Job t1 deleted.\n"
    assert served.ok("rowlock wait t1 --for deleted") == "Job t1 is deleted.\n"


def test_wait_says_why_not(served: Served) -> None:
    served.node("a")
    served.ok("rowlock run -d -n 2 --name t1 -- false")
    served.bound(2)
    code, _, err = served.run("rowlock wait t1 --timeout 0s")
    assert code == 1 and "after 0s, not completed" in err
    assert "after 0s, not completed" in served.run("rowlock wait t1 --timeout 0")[2]
    served.run_pods()
    served.finish(3)
    code, _, err = served.run("rowlock wait t1 --timeout 60s")
    assert code == 1 and err.startswith("Job t1 is failed: ")
    code, _, err = served.run("rowlock wait t1 --for deleted --timeout 0s")
    assert code == 1 and err.startswith("Job t1 is failed after 0s, not deleted: "), "who has ended can be deleted yet"
    assert served.ok("rowlock wait nobody --for deleted") == "Job nobody is deleted.\n"
    code, out, err = served.run("rowlock wait t1 -p nowhere --for deleted")
    assert (code, out) == (1, "") and err.startswith("project nowhere was not found."), "which says nothing of a job"


def test_an_elastic_job_that_trains_with_its_minimum_is_running(served: Served) -> None:
    served.node("a", 1)
    served.ok("runai pytorch submit t1 -i host -g 1 --workers 2 --min-replicas 1 --max-replicas 2 --no-master")
    served.bound(1)
    [first] = [pod for pod, made in served.pods().items() if made["spec"].get("nodeName")]
    served.report("runai-default", first, "Running", {"running": {"startedAt": NOW}})
    said = served.ok("rowlock wait t1 --for running --timeout 60s")
    assert said.startswith("Job t1 is running: ") and said.endswith(" Meanwhile 1 of 2 pods run.\n")
    body = json.loads(served.ok("rowlock wait t1 --for running --timeout 60s --json"))
    assert (body["phase"], body["additionalFields"]["status"]) == ("Degraded", "Running")
    assert body["reachedPhase"] == "Running"
    code, _, err = served.run("rowlock wait t1 --timeout 0s")
    assert code == 1 and err.startswith("Job t1 is degraded after 0s, not completed: ")


def test_a_wait_has_a_sentence_everywhere(served: Served) -> None:
    served.node("a", 1)
    served.ok("runai submit-dist pytorch big --workers=3 -g 1 -i host")
    served.until(lambda: "GPU" in served.ok("rowlock list").splitlines()[-1].split("  ")[-1])
    fits = "  fits now: 1 of 4 pods\n  asks for: 4 GPUs"
    served.until(lambda: fits in served.ok("rowlock explain big"))  # its pods are not all made at once
    explained = served.ok("rowlock explain big")
    assert explained.startswith("big is Pending") and "GPU" in explained
    assert "  nodes: 1, 1 GPU free, most on a (1)\n  what helps: " in explained
    assert "Why:" in served.ok("rowlock describe big")
    assert "Backoff limit:  6 restarts of the job, however many ranks it has\n" in served.ok("rowlock describe big")
    served.ok("rowlock run -d --name small -g 1 -i host -- sleep 99")
    held_by = " GPUs are held by small (1 GPU)."
    for command in ("rowlock explain", "rowlock describe", "rowlock why", "runai pytorch describe"):
        served.until(lambda said=command: held_by.strip() in served.ok(f"{said} big"))  # type: ignore[misc]
    body = json.loads(served.ok("rowlock explain big --json"))
    assert body["phase"] == "Pending" and body["minMember"] == 4 and body["message"]
    record = body["record"]
    assert (record["podsFit"], record["podsNeeded"], record["ahead"]) == (1, 4, 0)
    assert record["queue"][0]["name"] == "default" and record["hint"] and record["reason"] == body["reason"]
    assert body["evicted"] is None


def test_merged_logs_have_ranks_and_the_order_of_time(served: Served) -> None:
    served.node("a")
    served.ok(SUBMIT)
    code, _, err = served.run("rowlock logs t1")
    assert code == 1 and "no pod of t1 has started yet" in err
    served.bound(2)
    served.run_pods()
    served.until(lambda: "2/2" in served.ok("rowlock list"))
    served.logs["t1-master-0"] = ["2026-01-01T00:00:00Z one", "2026-01-01T00:00:02Z three"]
    served.logs["t1-worker-0"] = ["2026-01-01T00:00:01Z two"]
    assert served.ok("rowlock logs t1") == "[rank 0] one\n[rank 1] two\n[rank 0] three\n"
    assert served.ok("rowlock logs t1 --pod worker-0") == served.ok("rowlock logs t1 --rank 1") == "two\n"
    refused = "Failed to find pod: 'rank-2' of job: 't1'. Its pods: t1-master-0, t1-worker-0."
    assert refused in served.run("rowlock logs t1 --rank 2")[2]
    assert served.run("rowlock logs t1 --rank 0 --pod worker-0")[0] == 2
    served.finish()
    followed = served.ok("rowlock logs -f t1").splitlines()
    assert sorted(followed) == ["[rank 0] one", "[rank 0] three", "[rank 1] two"]
    code, _, err = served.run("rowlock logs t1 --pod worker-7")
    assert code == 1 and "Its pods: t1-master-0, t1-worker-0." in err


def test_a_bar_of_one_rank_is_one_line_in_a_pipe(served: Served) -> None:
    served.node("a")
    served.ok(SUBMIT)
    served.bound(2)
    served.run_pods()
    served.until(lambda: "2/2" in served.ok("rowlock list"))
    served.logs["t1-worker-0"] = ["2026-01-01T00:00:01Z 1/3\r2/3\r3/3", "2026-01-01T00:00:02Z done"]
    for line in ("rowlock logs t1 --rank 1", "rowlock logs t1 --rank 1 --tail 2"):
        assert served.ok(line) == "3/3\ndone\n"
    assert served.ok("rowlock logs t1 --rank 1 --timestamps").startswith("2026-01-01T00:00:01Z 3/3\n")
    assert served.run("rowlock logs t1 --pod worker-0")[1].encode() == b"1/3\r2/3\r3/3\ndone\n", "as it was written"


def test_the_log_of_a_pod_that_waits_for_room_says_for_what(served: Served) -> None:
    served.ok(SUBMIT)
    for line in ("runai logs t1", "rowlock logs t1 --rank 1"):
        # its pod is made, and the scheduler has said why it waits, a moment after the submit
        served.until(lambda asked=line: " has not started yet: " in served.run(asked)[2])  # type: ignore[misc]
        served.until(lambda asked=line: "ContainerCreating" not in served.run(asked)[2])  # type: ignore[misc]
        code, _, err = served.run(line)
        assert code == 1 and " has not started yet: " in err
        assert err.endswith(". Follow with -f to wait.\n") and ".. " not in err


def test_who_follows_a_pod_that_never_starts_hears_that_it_was_deleted(served: Served) -> None:
    served.ok(SUBMIT)
    served.until(lambda: " has not started yet: " in served.run("runai logs t1")[2])  # its pods are made
    program = "from rowlock.cli.main import runai; runai()"
    line = [sys.executable, "-c", program, "logs", "t1", "-f", "--loglevel", "debug", "--data-dir", str(served.data)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stderr is not None
        assert any("/pods/t1-master-0/logs" in told for told in following.stderr), "it asked for no log"
        served.ok("runai delete job t1")
        served.until(served.reap)
        assert following.stdout is not None
        assert following.stdout.read() == "rowlock: the log ends here: t1-master-0 was deleted before it started.\n"


def test_a_hang_is_told_to_who_follows_the_log(served: Served) -> None:
    """The log of a job that hangs is silent: the event must be said beside it, once."""
    served.node("a")
    served.ok(SUBMIT)
    (job,) = json.loads(served.ok("rowlock list --json"))

    def event(reason: str, message: str) -> None:
        about = {"kind": "PyTorchJob", "namespace": "runai-default", "name": "t1", "uid": job["childrenIds"][0]["id"]}
        meta = {"name": f"e-{reason.lower()}", "namespace": "runai-default"}
        made = {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about, "reason": reason}
        served.do(lambda: served.store.create(kinds.EVENT, {**made, "message": message, "type": "Warning"}))
        served.until(lambda: message in json.dumps(served.get(events_path)))

    found = read_server_json(str(served.data))
    assert found is not None
    server = client.ServerClient(found["url"], str(served.data))
    events_path = f"/api/v1/workloads/{job['id']}/events"
    event("RankFailed", "rank 0 ended")
    event("JobHangs", "rank 1 keeps the others waiting")
    with closing(ProgressReporter(server, "t1", events_path)) as news:
        news.report_new_events()
        news.report_new_events()
    assert served.capsys.readouterr().err == "Job t1: rank 1 keeps the others waiting\n"
    with closing(ProgressReporter(server, "t1", events_path, restarts=True)) as news:
        news.report_new_events()
    assert "Job t1: rank 0 ended\n" in served.capsys.readouterr().err
    event("PyTorchJobSuspended", "PyTorchJob t1 is suspended.")
    for pauses, told in ((True, True), (False, False)):
        with closing(ProgressReporter(server, "t1", events_path, pauses=pauses)) as news:
            news.report_new_events()
        assert ("Job t1: PyTorchJob t1 is suspended.\n" in served.capsys.readouterr().err) == told


def test_a_suspended_job_says_so(served: Served) -> None:
    served.node("a")
    served.ok(SUBMIT)
    served.ok("rowlock suspend t1")
    served.until(served.reap)
    served.until(lambda: "Stopped" in served.ok("rowlock list"))
    again = "t1 is suspended and has no pods: `rowlock resume t1` starts it again."
    assert served.run("rowlock logs t1")[2].strip() == again
    assert "`rowlock resume t1` starts it again" in served.run("rowlock wait t1 --timeout 0s")[2]
    assert served.ok("rowlock why t1") == "It is suspended: `rowlock resume t1` starts it again.\n"
    assert "It is suspended: `rowlock resume t1`" in served.ok("rowlock explain t1")


def test_the_logs_of_pods_that_are_gone_are_read(served: Served) -> None:
    """A suspended job has no pods; what they wrote is kept, and every way to ask for a log finds it."""
    served.node("a")
    served.ok(SUBMIT)
    served.bound(2)
    served.run_pods()
    served.until(lambda: "2/2" in served.ok("rowlock list"))
    served.ok("rowlock suspend t1")
    served.until(served.reap)
    served.until(lambda: "Stopped" in served.ok("rowlock list"))
    served.logs["t1-master-0"] = ["2026-01-01T00:00:00Z one", "2026-01-01T00:00:02Z three"]
    assert served.ok("rowlock logs t1") == "[rank 0] one\n[rank 0] three\n"
    served.logs["t1-worker-0"] = ["2026-01-01T00:00:01Z two"]
    assert served.ok("rowlock logs t1") == "[rank 0] one\n[rank 1] two\n[rank 0] three\n"
    for words in ("--rank 1", "--pod worker-0", "--pod t1-worker-0"):
        assert served.ok(f"rowlock logs t1 {words}") == "two\n"
    assert served.ok("runai logs t1") == "one\nthree\n"
    assert served.ok("runai logs t1 --pod t1-worker-0") == "two\n"
    assert "Failed to find pod: 'rank-7'" in served.run("rowlock logs t1 --rank 7")[2]


@pytest.mark.parametrize(("gone", "name"), [("worker-0", "--rank 1"), ("master-0", "--rank 0")])
def test_the_log_of_a_pod_that_is_gone_is_found_while_others_remain(served: Served, gone: str, name: str) -> None:
    """As the clean-pod policy leaves a job that is over."""
    served.node("a")
    served.ok(f"{SUBMIT} --backoff-limit 0")
    served.bound(2)
    served.run_pods()
    served.finish(1 if gone == "master-0" else 0)
    served.until(lambda: "Failed" in served.ok("rowlock list") or "Completed" in served.ok("rowlock list"))
    pod, now = f"t1-{gone}", DeleteOptions(grace=0)
    with suppress(NotFound):
        served.do(lambda: served.store.delete(kinds.POD, "runai-default", pod, options=now))
    served.until(lambda: pod not in served.get("/api/v1/workloads/pods?limit=50"))
    served.logs[pod] = ["2026-01-01T00:00:01Z of the one that is gone"]
    for words in (name, f"--pod {gone}", f"-f {name}", f"-f --pod {pod}"):
        assert served.ok(f"rowlock logs t1 {words}") == "of the one that is gone\n"
    assert served.ok(f"runai logs t1 --pod {pod}") == "of the one that is gone\n"
    assert served.ok("rowlock logs -f t1") == f"[{name[2:].replace('--', '')}] of the one that is gone\n"
    if gone == "master-0":
        assert served.ok("runai logs t1") == "of the one that is gone\n"
    assert "Its pods: " in served.run("rowlock logs t1 --pod worker-7")[2]


def test_a_suspended_job_has_not_failed() -> None:
    """Its ranks were asked to end: that is no incident, and nobody is blamed."""
    job = {"metadata": {"name": "j", "uid": "u"}, "spec": {"runPolicy": {"suspend": True}}}
    workload = Workload(job, [], None, Project("p", "p", "runai-p", "p", "", "", Decimal(0), Decimal(0)), "c")
    told = {"sentence": "No rank failed: rank 0 was told to end.", "deaths": [], "asked": True}
    failed = {"sentence": "rank 1 failed.", "deaths": [], "asked": False}
    resume = "It is suspended: `rowlock resume j` starts it again."
    found = {"incidents": [told], "verdict": None, "ranks": []}
    assert history.explain_workload(workload, found)["sentence"] == resume
    assert (
        history.explain_workload(workload, {**found, "incidents": [failed, told]})["sentence"]
        == f"{resume} Before that: rank 1 failed."
    )


def test_pods_that_cannot_be_made_are_the_reason(served: Served) -> None:
    container = {"name": "pytorch", "image": "i"}
    replica = {"replicas": 1, "restartPolicy": "OnFailur", "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "typo", "namespace": "runai-default"},
        "spec": {"pytorchReplicaSpecs": {"Master": replica}},
    }  # fmt: skip
    served.do(lambda: served.store.create(kinds.PYTORCHJOB, job))
    served.until(lambda: "typo" in served.ok("rowlock list"))
    served.until(lambda: 'Unsupported value: "OnFailur"' in served.ok("rowlock why typo"))
    served.until(lambda: "Error creating: Pod" in served.ok("rowlock list"))


def test_cordoned_nodes_are_not_just_ready(served: Served) -> None:
    served.node("old")
    served.node("new")
    assert ", cordoned" not in served.ok("rowlock status")
    cordon = {"spec": {"unschedulable": True}}
    served.do(lambda: served.store.patch(kinds.NODE, "", "old", cordon, type="merge"))
    said = served.ok("rowlock status")
    assert said.count("Ready, cordoned") == 1 and "A cordoned node takes no new pods" in said


def test_a_pipe_gets_the_whole_sentence(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.node("a", 1)
    served.node("b", 1)
    served.ok("rowlock run -d -n 12 -g 1 --name big -- python train.py")
    served.until(lambda: "2 of 12 pods fit" in served.ok("rowlock explain big"))
    whole = json.loads(served.ok("rowlock explain big --json"))["message"]
    assert len(whole) > 100 and whole in served.ok("rowlock list")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert whole[:99] + "…" in served.ok("rowlock list")


@pytest.mark.parametrize("verb", ["describe", "why", "suspend", "logs", "delete"])
def test_the_name_of_a_cron_job_leads_to_its_jobs(served: Served, verb: str) -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "img"}], "restartPolicy": "Never"}}
    spec = {"schedule": "0 0 29 2 *", "jobTemplate": {"spec": {"template": template}}}
    name = f"nightly-{verb}"
    cron = {"metadata": {"name": name, "namespace": "runai-default"}, "spec": spec}
    made = served.do(lambda: served.store.create(kinds.CRON_JOB, cron))
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": name, "uid": uid(made), "controller": True}
    metadata = {"name": f"{name}-1", "namespace": "runai-default", "ownerReferences": [owner]}
    served.do(lambda: served.store.create(kinds.BATCH_JOB, {"metadata": metadata, "spec": {"template": template}}))
    code, _, err = served.run(f"rowlock {verb} {name}")
    assert code == 1 and err.startswith(f"{name} is a CronJob, and each Job that it makes is a workload of its own.")
    assert f"{name}-1" in err and f"kubectl patch cronjob {name} -n runai-default" in err


def test_projects(served: Served) -> None:
    assert served.ok("rowlock project create project_name --gpus 2").startswith("Project project_name created")
    served.ok("rowlock project set project_name")
    assert "project_name (selected)" in served.ok("rowlock project list")
    code, _, err = served.run("runai describe job distributed-training-pytorch -p project_name")
    assert code == 1 and "does not exist in project project_name" in err
    served.ok("rowlock project update project_name --gpus 3")
    assert json.loads(served.ok("rowlock project list --json"))[1]["totalResources"]["gpuQuota"] == 3
    assert served.ok("rowlock project delete project_name -y") == "Project project_name deleted.\n"


def test_a_new_quota_leaves_limits_weights_and_other_resources(served: Served) -> None:
    served.ok("rowlock project create a --gpus 2")
    resources = {"gpu": {"quota": 2, "limit": 6, "overQuotaWeight": 3}, "cpu": {"quota": 5, "limit": 7}}
    given = {"spec": {"resources": resources, "priority": 75}}
    served.do(lambda: served.store.patch(kinds.QUEUE, "", "a", given, type="merge"))
    served.ok("rowlock project update a --gpus 4")
    spec = served.do(lambda: served.store.get(kinds.QUEUE, "", "a"))["spec"]
    assert spec["resources"]["gpu"] == {"quota": 4, "limit": 6, "overQuotaWeight": 3}
    assert (spec["resources"]["cpu"]["limit"], spec["priority"]) == (7, 75)
    code, _, err = served.run("rowlock project update a --gpus 8")
    assert code == 1 and "must be no less than deserved (8)" in err
    served.ok("rowlock project update a --gpu-limit unlimited --gpu-over-quota-weight 0.5")
    spec = served.do(lambda: served.store.get(kinds.QUEUE, "", "a"))["spec"]
    assert {"limit": -1, **spec["resources"]["gpu"]} == {"quota": 4, "limit": -1, "overQuotaWeight": 0.5}
    assert "unlimited GPUs" in served.ok("rowlock project update a --gpus unlimited")
    for flags, words in (
        ("--gpus many", "--gpus must be a number no less than 0, or unlimited, but is 'many'"),
        ("--gpu-limit=-1", "--gpu-limit must be a number no less than 0"),
        ("--gpu-over-quota-weight unlimited", "--gpu-over-quota-weight must be a number no less than 0, but is"),
        ("", "say what to change of a: one of --gpus, --gpu-limit, --gpu-over-quota-weight, or --unix-account NAME"),
    ):
        code, _, err = served.run(f"rowlock project update a {flags}")
        assert code == 2 and words in err, err


def test_a_project_with_work_in_it_is_not_deleted(served: Served) -> None:
    assert "`rowlock project create a` makes it" in served.run("rowlock project set a")[2]
    said = served.ok("rowlock project create a --gpus 1")
    assert "1 GPU)" in said
    served.ok(f"{SUBMIT} -p a")
    code, _, err = served.run("rowlock project delete a -y")
    assert code == 1 and "has 1 unfinished workload (t1); delete it first: `rowlock delete -p a t1`" in err
    served.ok("rowlock delete -p a t1")


def test_who_deletes_the_selected_project_is_in_the_default_one(served: Served) -> None:
    assert "unlimited GPUs" in served.ok("rowlock project create a --gpus unlimited")
    assert served.run("rowlock project create b --gpus -1")[::2] == (
        2, "--gpus must be a number no less than 0, or unlimited, but is '-1'\n"
    )  # fmt: skip
    served.ok("rowlock project set a")
    _, out, err = served.run("rowlock project delete a -y")
    assert out == "Project a deleted.\n" and err.startswith("It was selected; now default is: ")
    assert served.run("rowlock list")[0] == 0


def test_run_submits_what_was_typed(served: Served) -> None:
    served.node("a")
    name = served.ok(
        [
            "rowlock",
            "run",
            "-d",
            "-n",
            "2",
            "--nproc-per-node=2",
            "-e",
            "X=1",
            "--memory-limit=1Gi",
            "--",
            "python",
            "train.py",
            "--lr",
            "1",
        ]
    )
    assert name == "train-0\n"
    served.bound(2)
    pod = served.pods()["train-0-worker-0"]
    container = pod["spec"]["containers"][0]
    assert container["command"] == ["python", "-m", "torch.distributed.run", "train.py", "--lr", "1"]
    assert container["workingDir"] == str(Path.cwd())
    assert container["resources"]["limits"]["memory"] == "1Gi"
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert (env["X"], env["PET_NPROC_PER_NODE"], env["PET_NNODES"], env["PET_NODE_RANK"]) == ("1", "2", "2", "1")
    assert container["envFrom"] == [
        {"secretRef": {"name": pod["metadata"]["annotations"]["rowlock.dev/shell-environment"]}}
    ]
    assert served.ok("rowlock run -d python other.py --help") == "other-0\n"
    code, out, err = served.run("rowlock run -d --memory-limit lots python other.py")
    assert code and not out and "--memory-limit" in err and "lots" in err


def test_ranks_that_torchrun_starts_are_found_in_their_pods(served: Served) -> None:
    served.node("a")
    served.ok("rowlock run -d --clean-env -n 2 --nproc-per-node 3 --name t -- python train.py")
    served.bound(2)
    served.run_pods()
    served.until(lambda: "2/2" in served.ok("rowlock list"))
    served.logs["t-worker-0"] = ["2026-01-01T00:00:00Z from the second pod"]
    code, out, err = served.run("rowlock logs t --rank 4")
    assert (code, out) == (0, "from the second pod\n") and "Rank 4 runs in t-worker-0, with all of ranks 3 to 5" in err
    marked = ["[default0]:mine no", "[default1]:first", "an agent's", "[default1]:second", "[default2]:no"]
    served.logs["t-worker-0"] = [f"2026-01-01T00:00:00Z {text}" for text in marked]
    assert served.run("rowlock logs t --rank 4")[1] == "first\nan agent's\nsecond\n"
    assert served.run("rowlock logs t --rank 4 --tail 1")[1] == "second\n"
    assert served.run("rowlock logs t --rank 4 -n 1")[1] == served.run("rowlock logs t --rank 4 -t1")[1] == "second\n"
    assert served.run("rowlock logs t --rank 4 --tail -1")[1] == "first\nan agent's\nsecond\n", "kubectl's word for all"
    assert served.run("rowlock logs t --tail=-2")[::2] == (
        2,
        "--tail must be at least 0, or -1 for all lines, but is -2\n",
    )
    assert served.run("rowlock logs t --rank 4 --timestamps")[1].startswith("2026-01-01T00:00:00Z first\n")
    assert "t has no rank 6; its ranks are 0 to 5, 3 in each pod" in served.run("rowlock logs t --rank 6")[2]


@pytest.mark.parametrize(
    ("typed", "launched"),
    [
        ("python t.py --lr 1", "python -m torch.distributed.run t.py --lr 1"),
        ("python -u t.py", "python -m torch.distributed.run --no-python python -u t.py"),
        ("./t.sh 1", "torchrun --no-python ./t.sh 1"),
        ("torchrun --nproc-per-node 2 t.py", "torchrun --nproc-per-node 2 t.py"),
    ],
)
def test_several_ranks_in_a_pod_are_started_by_torchrun(typed: str, launched: str) -> None:
    assert launch_command(typed.split(), 2) == launched.split()
    assert launch_command(typed.split(), 1) == typed.split()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--nproc-per-node auto", "auto"),
        ("--nproc_per_node=cpu -g 2", "cpu"),
        ("--nproc-per-node auto -g 2", "2"),
        ("--nproc-per-node gpu -g 3", "3"),
        ("--nproc-per-node gpu -g 1", "1"),
    ],
)
def test_processes_per_pod_may_be_words_as_torchrun_has_them(served: Served, flags: str, said: str) -> None:
    served.node("a", 6)
    served.ok(f"rowlock run -d --clean-env -n 2 -i i --name t {flags} -- python train.py")
    served.bound(2)
    (container,) = served.pods()["t-worker-0"]["spec"]["containers"]
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert env["PET_NPROC_PER_NODE"] == said
    assert ("torch.distributed.run" in container["command"]) == (said != "1") == ("LOCAL_RANK" not in env)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("gpus -g 2", "--nproc-per-node takes a number from 1, auto, cpu or gpu, not gpus. Did you mean `gpu`?"),
        ("0", "--nproc-per-node takes a number from 1, auto, cpu or gpu, not 0."),
        ("1.5", "--nproc-per-node takes a number from 1, auto, cpu or gpu, not 1.5."),
        ("gpu", "--nproc-per-node gpu means one process for each GPU, and the pods ask for none: add -g N"),
    ],
)
def test_other_processes_per_pod_are_refused(served: Served, flags: str, sentence: str) -> None:
    code, _, err = served.run(f"rowlock run -d --nproc-per-node {flags} -- python train.py")
    assert code == 2 and sentence in err


def test_the_only_process_of_a_job_has_a_local_rank_when_it_asks_for_one(served: Served) -> None:
    served.node("a")
    for name, flags in (("alone", ""), ("asks", "--nproc-per-node 1"), ("two", "-n 2")):
        served.ok(f"rowlock run -d --clean-env -i i --name {name} {flags} -- python train.py")
    served.bound(4)
    for name, local_rank in (("alone", None), ("asks", "0"), ("two", "0")):
        (container,) = served.pods()[f"{name}-master-0"]["spec"]["containers"]
        env = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert (env.get("LOCAL_RANK"), env["RANK"]) == (local_rank, "0")


def test_words_that_begin_with_a_flag_are_arguments_of_the_image(served: Served) -> None:
    """Docker passes all words to the ENTRYPOINT; here a program replaces it, and what can be no program does not."""
    served.node("a")
    assert served.ok("rowlock run -d -i team/mnist:2 -- --lr $$5 train.py") == "mnist-0\n"
    assert served.ok("rowlock run -d -i team/mnist:2 -- sh -c true") == "sh-0\n"
    served.bound(2)
    pods = {pod: made["spec"]["containers"][0] for pod, made in served.pods().items()}
    flags, program = pods["mnist-0-master-0"], pods["sh-0-master-0"]
    assert "command" not in flags and flags["args"] == ["--lr", "$$$$5", "train.py"]
    assert program["command"] == ["sh", "-c", "true"] and "args" not in program
    code, _, err = served.run("rowlock run --nproc-per-node 2 -i team/mnist:2 -- --lr 5")
    assert code == 2 and "--lr, but that is an argument of the image's own program: say what to run" in err


def test_the_ranks_of_a_torchrun_that_was_typed_are_ranks(served: Served) -> None:
    served.node("a")
    code, _, err = served.run("rowlock run -d --name t --nproc-per-node 3 -- torchrun --nproc-per-node 2 t.py")
    assert code == 2 and "--nproc-per-node is 3, and torchrun's own is 2: leave one of them out" in err
    served.ok("rowlock run -d --clean-env -n 2 --name t -- torchrun --nproc-per-node 2 train.py")
    served.bound(2)
    served.run_pods()
    served.until(lambda: "2/2" in served.ok("rowlock list"))
    served.logs["t-worker-0"] = ["2026-01-01T00:00:00Z [default0]:two", "2026-01-01T00:00:00Z [default1]:three"]
    assert served.run("rowlock logs t --rank 3")[1] == "three\n"
    assert served.ok("rowlock logs t") == "[rank 2] two\n[rank 3] three\n"


def test_delete_all_asks_or_refuses(served: Served) -> None:
    """The stdin of a script is no terminal: nobody can be asked, and nobody has said yes."""
    served.node("a")
    served.ok(SUBMIT)
    for program in ("rowlock", "runai"):
        code, out, err = served.run(f"{program} delete --all")
        assert code == 1 and not out
        assert "Nothing was deleted: --all means 1 job of project default" in err and "--yes" in err
    assert "t1" in served.ok("rowlock list")
    assert served.ok("rowlock delete --all --yes") == "Job t1 deleted.\n"
    assert served.ok("rowlock delete --all") == ""


def test_run_without_a_command(served: Served) -> None:
    code, _, err = served.run("rowlock run -n 2")
    assert code == 2 and "say what to run" in err


@pytest.mark.parametrize("line", ["rowlock list", "runai list jobs", "rowlock logs x", "runai submit-pytorch x -i y"])
def test_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    program, *argv = line.split()
    code, _, err = call(program, argv, tmp_path, capsys)
    assert code == 1
    assert err == f"no server is running for {tmp_path}. Start one: `rowlock up -d`\n"


def test_a_line_that_is_told_means_the_same_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = tmp_path / "another one"
    _, _, err = call("rowlock", ["list", "--data-dir", str(elsewhere)], tmp_path, capsys)
    assert f"Start one: `rowlock up -d --data-dir '{elsewhere}'`" in err
    flags = {"data_dir": "/elsewhere", "nodes": 2}
    assert restart_command({"flags": flags}) == "rowlock up -d --data-dir /elsewhere --nodes 2"
    with pytest.raises(CommandError, match=r"without --nodes 3\. Stop it first: `rowlock down --data-dir /elsewhere`"):
        check_same_settings("/elsewhere", {"pid": 1, "flags": flags}, {"nodes": 3})


def test_a_dead_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "server.json").write_text(json.dumps({"pid": ended.pid, "url": "https://127.0.0.1:1"}))
    code, _, err = call("rowlock", ["list"], tmp_path, capsys)
    assert code == 1 and "is not running any more" in err
    code, out, _ = call("rowlock", ["status"], tmp_path, capsys)
    assert code == 1 and "rowlock up -d" in out
    code, out, _ = call("rowlock", ["down"], tmp_path, capsys)
    assert code == 0 and "No server is running" in out


def test_a_project_whose_queue_is_gone_says_so(served: Served) -> None:
    served.ok("rowlock project create team-b --gpus 2")

    async def delete_queue() -> None:
        await served.store.delete(kinds.QUEUE, "", "team-b")

    served.do(delete_queue)
    served.until(lambda: "no queue" in served.ok("rowlock project list"))
    _, out, err = served.run("rowlock project list")
    assert next(line for line in out.splitlines() if line.startswith("team-b")).split() == [
        "team-b",
        "runai-team-b",
        "no",
        "queue",
    ]
    assert err == (
        "Project team-b: The project's queue 'team-b' does not exist. Its jobs wait until it has one: "
        "`rowlock project update team-b --gpus Q` (its quota, or unlimited) makes it anew.\n"
    )
    assert served.ok("rowlock project update team-b --gpus 3") == "Project team-b changed (3 GPUs).\n"
    code, out, err = served.run("rowlock project list")
    assert (code, err) == (0, "") and ["team-b", "runai-team-b", "3", "0"] in [row.split() for row in out.splitlines()]


def test_status_names_the_server(served: Served) -> None:
    served.node("a", 2)
    body = json.loads(served.ok("rowlock status --json"))
    assert body["running"] is True and body["pid"] and body["url"].startswith("http")
    assert "a " in served.ok("rowlock status")
    assert (format_memory("24684084Ki"), format_memory("512Ki"), format_memory("16Gi")) == ("23.5Gi", "0.5Mi", "16Gi")


def test_no_flag_hides_what_every_line_has() -> None:
    """`kubeconfig --path` once hid the path of words that refusals begin with: "`rowlock None` takes no argument"."""
    own = set(vars(CommandLine("rowlock", "", [])))

    def commands(group: Group) -> Iterator[Command]:
        for each in group.commands:
            yield from commands(each) if isinstance(each, Group) else [each]

    for command in (*commands(ROWLOCK), *commands(RUNAI)):
        assert not own & {flag.dest for flag in flags_of(command)}, command.name


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rowlock lst", "Did you mean `list`?"),
        ("rowlock nodes", "`rowlock status` shows the nodes"),
        ("rowlock queues", "`rowlock project list`"),
        ("rowlock restart j", "`rowlock rerun JOB --replace`"),
        ("rowlock scale j --replicas 2", "`kubectl scale pytorchjob JOB --replicas N"),
        ("rowlock events", "`rowlock describe JOB`"),
        ("rowlock submit train.py", "`rowlock run -- python train.py` submits"),
        ("rowlock run train.py", "say what runs it, `rowlock run … -- python train.py …`"),
        ("rowlock list --jsn", "Did you mean `--json`?"),
        ("rowlock list x", "takes no argument"),
        ("rowlock list -o json", "Did you mean `--json`?"),
        ("rowlock kubeconfig x", "`rowlock kubeconfig` takes no argument"),
        ("rowlock check job.yaml", "Did you mean `-f job.yaml`?"),
        ("rowlock describe", "needs one job"),
        ("rowlock up --nodes 0", "must be at least 1"),
        ("rowlock up --nodes two", "whole number"),
        ("rowlock up --without kubelt", "takes kubelet and scheduler"),
        ("rowlock wait x --for done", "completed"),
        ("rowlock build .", "needs a name"),
        ("rowlock image add x", "--host"),
    ],
)
def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, words: str) -> None:
    program, *argv = line.split()
    code, out, err = call(program, argv, tmp_path, capsys)
    assert code == 2, out + err
    assert words in err


@pytest.mark.parametrize("line", ["rowlock help", "rowlock help run", "rowlock run --help", "runai help"])
def test_help_may_be_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    program, *argv = line.split()
    code, out, _ = call(program, argv, tmp_path, capsys)
    assert code == 0 and "Usage: " in out and ("--nnodes" in out) == ("run" in argv)


def commands(group: Group, path: str = "") -> list[tuple[str, Command]]:
    found: list[tuple[str, Command]] = []
    for one in group.commands:
        here = f"{path} {one.name}".strip()
        found += commands(one, here) if isinstance(one, Group) else [(here, one)]
    return found


@pytest.mark.parametrize("root", [ROWLOCK, RUNAI], ids=["rowlock", "runai"])
def test_every_command_has_help_and_a_body(root: Group) -> None:
    from rowlock.cli.grammar import load_target

    for path, command in commands(root):
        text = help_of(root.name, path, command)
        assert text.startswith(command.summary)
        if command.refuse:
            assert f"Not supported by rowlock: {command.refuse}." in text
        else:
            assert f"Usage: {root.name} {path}" in text and callable(load_target(command.run)), path


def test_help_is_instant() -> None:
    """CPU time, the best of three: this measures the program, not the machine's other work."""
    code = "import sys; sys.argv = ['runai', 'submit-dist', 'pytorch', '--help']\nfrom rowlock.cli.main import runai; runai()"
    best = 9.0
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert "--workers" in done.stdout
    assert best < 0.4, f"{best:.3f} s of CPU (the budget on an idle machine is 0.12 s)"


def test_the_hot_path_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['rowlock', '--help']\n"
        "from rowlock.cli import main\n"
        "try: main.rowlock()\n"
        "except SystemExit: pass\n"
        "heavy = {'click', 'argparse', 'http.client', 'ssl', 'json.tool', 'yaml', 'asyncio', 'dataclasses', 'msgspec'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["version"], ["--help"], ["run", "--help"]])
def test_a_full_disk_behind_stdout_is_said(words: list[str]) -> None:
    program = "from rowlock.cli.main import rowlock; rowlock()"
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([sys.executable, "-c", program, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    said = "the output cannot be written (No space left on device): make room where it goes, or send it elsewhere\n"
    assert (done.returncode, done.stderr) == (1, said)
