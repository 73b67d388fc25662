"""Plays the lives of CronJobs on a cluster that has controllers, but nothing that schedules and runs pods, and says what can be seen after each step."""

from __future__ import annotations

import copy
import json
import re
import secrets
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.cron_cases.lives import Step
from tests.operator_cases.playing import slowness

from rowlock.objects import Object, controller_of, is_deleting, labels, name, seconds, timestamp, uid
from rowlock.objects import annotations as annotations_of

Json = dict[str, Any]
MERGE = {"content-type": "application/merge-patch+json"}
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
SETTLED, RIGHT, PATIENCE = 1.5, 0.3, 15.0
"""Seconds without a change after which a state counts: when it is recorded, when it is as expected, when it is wrong."""
_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


@contextmanager
def connected(kubeconfig: Path) -> Iterator[httpx.Client]:
    """A client of the kubeconfig's one cluster and user, who has a token."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    headers = {"Authorization": f"Bearer {user['token']}"}
    with httpx.Client(base_url=cluster["server"], headers=headers, verify=tls, timeout=200) as client:
        yield client


class Life:
    """One CronJob in a namespace of its own."""

    def __init__(self, http: httpx.Client) -> None:
        self.http, self.namespace = http, f"cron-{secrets.token_hex(4)}"
        self.called: dict[str, str] = {}
        """Name of a Job that is made for a start → what it is called here: `tick-1`, in the order of the starts."""
        self.answers: list[str] = []

    def play(self, steps: Sequence[Step], expected: Sequence[Json] | None = None) -> list[Json]:
        """The state after each step. With `expected` it goes on as soon as it is right, and ends with the first that stays wrong."""
        self._enter()
        states: list[Json] = []
        try:
            for number, (verb, *how) in enumerate(steps):
                self.answers = []
                getattr(self, "_" + verb.replace(" ", "_"))(*how)
                states.append(self._settled(expected[number] if expected else None))
                if expected and states[-1] != expected[number]:
                    break
        finally:
            self._ask("DELETE", "cronjobs/tick", {"propagationPolicy": "Background"})
            self.http.delete(f"/api/v1/namespaces/{self.namespace}")
        return states

    def _enter(self) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        self.http.post("/api/v1/namespaces", json=space).raise_for_status()
        deadline = time.monotonic() + 60
        while self.http.get(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default").status_code != 200:
            assert time.monotonic() < deadline, "the namespace has no service account"
            time.sleep(0.05)

    # ------------------------------------------------------------ steps

    def _ask(self, verb: str, path: str, body: Json | None = None, headers: dict[str, str] | None = None) -> Json:
        group = "/api/v1" if path.startswith(("pods", "events")) else "/apis/batch/v1"
        answer = self.http.request(verb, f"{group}/namespaces/{self.namespace}/{path}", json=body, headers=headers)
        found: Json = answer.json()
        if answer.status_code >= 400:
            self.answers.append(f"{answer.status_code} {found.get('message')}")
        return found

    def _create(self, given: Json) -> None:
        given = copy.deepcopy(given)
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "img"}]}
        job = {**given.pop("job", {}), "template": {"spec": pod}}
        template = {"metadata": {key: given.pop(key, {}) for key in ("labels", "annotations")}, "spec": job}
        meta = {"name": "tick", **given.pop("meta", {})}
        body = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": meta,
            "spec": {**given, "jobTemplate": template},
        }
        self._ask("POST", "cronjobs", body)

    def _last(self, minutes: int) -> None:
        last = timestamp(time.time() - 60 * minutes)
        self._ask("PATCH", "cronjobs/tick/status", {"status": {"lastScheduleTime": last}}, MERGE)

    def _forget(self) -> None:
        """As if the server had died between a Job and the status: the status is the one of before."""
        before = timestamp(seconds(self._ask("GET", "cronjobs/tick")["status"]["lastScheduleTime"]) - 3600)
        self._ask("PATCH", "cronjobs/tick/status", {"status": {"active": None, "lastScheduleTime": before}}, MERGE)

    def _early(self, second: int) -> None:
        """Wait until the minute is young enough for what follows."""
        while time.time() % 60 > second:
            time.sleep(0.5)

    def _spec(self, change: Json) -> None:
        self._ask("PATCH", "cronjobs/tick", {"spec": change}, MERGE)

    def _end(self, phase: str) -> None:
        for pod in self._items("pods"):
            if (pod.get("status") or {}).get("phase") == "Pending":
                self._ask("PATCH", f"pods/{name(pod)}/status", {"status": {"phase": phase}}, MERGE)

    def _by_hand(self, called: str) -> None:
        """As `kubectl create job --from=cronjob/tick` does it."""
        cron = self._ask("GET", "cronjobs/tick")
        owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": uid(cron), "controller": True}
        meta = {
            "name": called,
            "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
            "ownerReferences": [owner],
        }
        spec = cron["spec"]["jobTemplate"]["spec"]
        self._ask("POST", "jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})

    def _taken(self, minutes: int) -> None:
        """A Job of nobody has the name that the start of so many minutes ago needs, or of the minute beside it."""
        cron = self._ask("GET", "cronjobs/tick")
        for minute in range(int(time.time()) // 60 - minutes - 1, int(time.time()) // 60 - minutes + 2):
            meta = {"name": f"tick-{minute}"}
            spec = {**cron["spec"]["jobTemplate"]["spec"], "suspend": True}
            self._ask("POST", "jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})

    def _delete_job(self, number: int) -> None:
        found = {alias: real for real, alias in self.called.items()}[f"tick-{number}"]
        self._ask("DELETE", f"jobs/{found}", {"propagationPolicy": "Background"})

    def _delete(self, how: str) -> None:
        self._ask("DELETE", "cronjobs/tick", {"propagationPolicy": how})

    # ------------------------------------------------------------ what can be seen

    def _items(self, plural: str) -> list[Object]:
        return list(self._ask("GET", plural).get("items") or ())

    def _settled(self, expected: Json | None) -> Json:
        began = changed = time.monotonic()
        last: Json = {}
        while True:
            state, now = self._look(), time.monotonic()
            if state != last:
                last, changed = state, now
            enough = SETTLED if expected is None else RIGHT if state == expected else PATIENCE
            if now - changed > enough * slowness() or now - began > 3 * PATIENCE * slowness():
                return state
            time.sleep(0.1)

    def _look(self) -> Json:
        jobs = self._items("jobs")
        for job in sorted(jobs, key=name):
            if re.fullmatch(r"tick-\d{8}", name(job)):
                self.called.setdefault(name(job), f"tick-{len(self.called) + 1}")
        crons = self._items("cronjobs")
        state: Json = {"answers": self.answers, "cron": self._cron(crons[0]) if crons else None}
        state["jobs"] = {name(job): self._job(job) for job in jobs}
        state["pods"] = len(self._items("pods"))
        state["table"] = self._rows()
        state["events"] = sorted({
            f"{e['type']} {e['reason']}: {e['message']}" for e in self._items("events") if e["involvedObject"]["kind"] == "CronJob"
        })  # fmt: skip
        text = json.dumps(state).replace(self.namespace, "$NS")
        text = re.sub(r"\w{3}, \d\d \w{3} \d{4} [\d:]{8} \+0000", "$TIME", text)
        named: Json = json.loads(re.sub(r"tick-\d{8}", lambda m: self.called.get(m[0], "tick-?"), text))
        return named

    def _cron(self, cron: Object) -> Json:
        status = cron.get("status") or {}
        last = status.get("lastScheduleTime")
        minute = f"tick-{int(seconds(last)) // 60}" if last else ""
        return {
            "active": [ref["name"] for ref in status.get("active") or ()],
            "references": [sorted(ref) for ref in status.get("active") or ()][:1],
            "last": minute if minute in self.called else bool(last),
            "succeeded": bool(status.get("lastSuccessfulTime")),
            "deleting": cron["metadata"].get("finalizers") if is_deleting(cron) else False,
            "generation": cron["metadata"].get("generation"),
            "spec": cron["spec"],
        }

    def _job(self, job: Object) -> Json:
        notes, owner = annotations_of(job), controller_of(job) or {}
        scheduled = notes.get(_SCHEDULED)
        own = {k: v for k, v in labels(job).items() if not k.endswith(("job-name", "controller-uid"))}
        spec = {k: v for k, v in job["spec"].items() if k not in ("selector", "template")}
        return {
            "labels": own,
            "annotations": {k: v for k, v in notes.items() if k not in (_SCHEDULED, "batch.kubernetes.io/job-tracking")},
            "scheduled": scheduled and (name(job).endswith(f"-{int(seconds(scheduled)) // 60}"), scheduled[19:]),
            "owner": {k: v for k, v in owner.items() if k != "uid"},
            "conditions": [c["type"] for c in (job.get("status") or {}).get("conditions") or () if c["status"] == "True"],
            "spec": spec,
        }  # fmt: skip

    def _rows(self) -> list[Any]:
        found = self._ask("GET", "cronjobs", headers=TABLE)
        columns = [c["name"] for c in found.get("columnDefinitions") or ()]
        return [[_masked(*pair) for pair in zip(columns, row["cells"], strict=True)] for row in found.get("rows") or ()]


def _masked(column: str, cell: Any) -> Any:
    return "$" if column in ("Age", "Last Schedule") and cell != "<none>" else cell
