"""The address of a project: who is told what, since when, and what becomes of it when somebody else writes its Secret or its project goes."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest
from tests.conftest import ENGINES
from tests.rest.conftest import World
from tests.rest.served import Served
from tests.waiting import until_async

from rowlock import kinds, objects
from rowlock.archive.records import PhaseStep, RunRecord
from rowlock.documents.web_address import WebAddress
from rowlock.objects import Object
from rowlock.rest.notifications.lanes import Delivery, Lanes
from rowlock.rest.notifications.notifier import Notifier
from rowlock.rest.notifications.project_address import ANNOTATION
from rowlock.rest.notifications.settings import NotifySettings
from rowlock.rest.notifications.webhook import Answer, Undelivered
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.workloads.run_options.notify import NOTIFIED_ANNOTATION, NOTIFY_ANNOTATION, UNTOLD_ANNOTATION

PASSWORD, KEY = "T0-the-address-is-a-password", "a-key-that-nobody-else-knows"
URL = f"https://chat.example.com/{PASSWORD}"
NAMESPACE = "runai-team-a"
OPERATOR = WebAddress("https", "ops.example.com", 443, "/all")


class Sent(Lanes):
    """Lanes that note what is put into them, and deliver it at once."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.deliveries: list[Delivery] = []
        self.tasks: list[Any] = []

    def put(self, delivery: Delivery) -> str:
        self.deliveries.append(delivery)
        self.tasks.append(asyncio.ensure_future(delivery.done("")))
        return ""

    def told(self) -> list[tuple[str, str, str]]:
        """(origin, job, event) of all."""
        bodies = [(one.address.origin, json.loads(one.message.body)) for one in self.deliveries]
        return sorted((origin, body["job"], body["event"]) for origin, body in bodies)


class Team:
    """A project with a notifier of its own, whose clock stands still."""

    def __init__(self, world: World) -> None:
        self.world, self.project = world, world.project()
        self.now = objects.seconds(self.namespace["metadata"]["creationTimestamp"]) + 60
        self.path = f"/api/v1/org-unit/projects/{self.project['id']}/notify"

    @property
    def namespace(self) -> Object:
        found = self.world.store.view.get(kinds.NAMESPACE, "", NAMESPACE)
        assert found is not None
        return found

    def secrets(self) -> list[Object]:
        return list(self.world.store.view.all(kinds.SECRET))

    def set(self, **more: Any) -> dict[str, Any]:
        """Set the address."""
        answer = self.world.client.put(self.path, json={"url": URL, **more})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        self.now = max(self.now, objects.seconds(found["setAt"]) + 1)
        return found

    def run_of(
        self,
        name: str,
        phase: str = "Failed",
        ended: float | None = None,
        uid: str = "",
        notes: dict[str, str] | None = None,
    ) -> RunNotes:
        """A run that has just ended, and whose job is in the store."""
        at = self.now if ended is None else ended
        meta = {"name": name, "namespace": NAMESPACE, "annotations": notes or {}}
        job = self.world.create(
            kinds.PYTORCHJOB, {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": {}}
        )
        record = RunRecord(
            objects.uid(job), "w", name, NAMESPACE, uid or objects.uid(self.namespace), "team-a", "PyTorchJob", at - 10
        )  # fmt: skip
        record.phase, record.finished, record.verdict = phase, at, f"It {phase.lower()}."
        return RunNotes(record, phases=[PhaseStep(at - 5, "Running"), PhaseStep(at, phase)], job=job)

    def tell(self, *runs: RunNotes, count: int, operator: bool = False) -> Sent:
        """What a new notifier tells of these runs, `count` messages or notes of a failure."""
        settings = NotifySettings(address=OPERATOR if operator else None)

        async def scenario() -> Sent:
            lanes = Sent()
            notifier = self.notifier(settings, lanes)
            work = asyncio.create_task(notifier.run())
            for notes in runs:
                notifier.consider(notes, None)
            await until_async(lambda: len(lanes.deliveries) >= count and notifier._news.empty(), f"{count} messages")
            for _ in range(20):  # what is told too much comes now
                await asyncio.sleep(0)
            await asyncio.gather(*lanes.tasks)
            work.cancel()
            return lanes

        sent: Sent = self.world.do(scenario)
        return sent

    def notifier(self, settings: NotifySettings, lanes: Lanes | None = None) -> Notifier:
        view = self.world.store.view
        return Notifier(
            self.world.store, settings, lambda: self.now, lanes, lambda name: view.get(kinds.NAMESPACE, "", name)
        )

    def notes_on(self, name: str) -> dict[str, str]:
        job = self.world.store.view.get(kinds.PYTORCHJOB, NAMESPACE, name)
        assert job is not None
        return objects.annotations(job)


@pytest.fixture
def team(world: World) -> Team:
    return Team(world)


CHAT, OPS = "https://chat.example.com", "https://ops.example.com"


def test_what_is_set_is_shown_without_its_password_and_replaced_as_a_whole(team: Team) -> None:
    nothing = {"projectName": "team-a", "target": "", "on": [], "signed": False, "setAt": None, "problem": ""}
    assert team.world.client.get(team.path).json() == nothing
    shown = team.set(on=["failed", "hangs"], key=KEY)
    assert shown["target"] == f"{CHAT}/…" and shown["on"] == ["failed", "hangs"] and shown["signed"]
    assert not shown["problem"] and team.world.client.get(team.path).json() == shown
    [first] = team.secrets()
    again = team.set()
    assert again["on"][:2] == ["started", "failed"] and not again["signed"]
    [second] = team.secrets()
    assert objects.name(first) != objects.name(second), "no reader finds the values of another change"
    everything = [
        json.dumps(shown),
        json.dumps(again),
        json.dumps(team.namespace),
        team.world.client.get("/api/v1/org-unit/projects").text,
    ]
    assert [text for text in everything if PASSWORD in text or KEY in text] == []
    for _ in range(2):
        assert team.world.client.delete(team.path).json() == nothing
    assert team.secrets() == [] and ANNOTATION not in objects.annotations(team.namespace)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"url": "ftp://x/"}, "must begin with https://"),
        ({"url": URL, "on": ["finished"]}, "may have started, failed"),
        ({"url": URL, "key": "short"}, "16 to 256"),
        ({"url": URL, "events": ["failed"]}, "there is no such field"),
        ({"url": "mailto:ana@example.com"}, "--notify-allow @example.com"),
        ({"url": "command:/bin/true"}, "operator alone"),
    ],
)  # fmt: skip
def test_a_mistake_changes_nothing(team: Team, body: dict[str, Any], words: str) -> None:
    before = team.set()
    answer = team.world.client.put(team.path, json=body)
    assert answer.status_code == 400 and words in answer.text and PASSWORD not in answer.text
    assert team.world.client.get(team.path).json() == before and len(team.secrets()) == 1


def test_all_jobs_of_the_project_tell_it_beside_their_own_and_the_operators(team: Team) -> None:
    own = {"url": b64encode(b"https://own.example.com/x").decode()}
    team.world.create(kinds.SECRET, {"metadata": {"name": "mine", "namespace": NAMESPACE}, "data": own})
    before = team.run_of("before")
    assert team.tell(before, count=0).told() == []
    team.set(on=["failed"])
    runs = [
        team.run_of("own", notes={NOTIFY_ANNOTATION: "mine"}),
        team.run_of("plain"),
        team.run_of("good", "Completed"),
    ]
    sent = team.tell(*runs, count=6, operator=True)
    assert sent.told() == [
        (CHAT, "own", "failed"), (CHAT, "plain", "failed"), (OPS, "good", "completed"), (OPS, "own", "failed"),
        (OPS, "plain", "failed"), ("https://own.example.com", "own", "failed"),
    ]  # fmt: skip
    assert team.notes_on("own")[NOTIFIED_ANNOTATION].split() == ["failed", "project/failed", "*failed"]
    assert PASSWORD not in json.dumps([team.notes_on(name) for name in ("own", "plain", "good")])


def test_what_happened_before_it_was_set_is_not_told(team: Team) -> None:
    began = objects.seconds(team.set()["setAt"])
    runs = [team.run_of("old", ended=began - 5), team.run_of("new")]
    assert team.tell(*runs, count=1).told() == [(CHAT, "new", "failed")]


def test_the_next_server_tells_each_target_what_it_has_not_been_told(team: Team) -> None:
    marks = {
        "none": "",
        "own": "failed",
        "project": "project/completed",
        "operator": "*failed",
        "both": "*failed project/failed",
    }
    runs = {name: team.run_of(name, notes={NOTIFIED_ANNOTATION: text}) for name, text in marks.items()}

    def owed(operator: bool) -> set[str]:
        notifier = team.notifier(NotifySettings(address=OPERATOR if operator else None))
        return {name for name, notes in runs.items() if notes.job and notifier.is_owed(notes.job)}

    assert owed(operator=False) == set() and owed(operator=True) == {"none", "own", "project"}
    team.set()
    assert owed(operator=False) == {"none", "own", "operator"}
    assert owed(operator=True) == {"none", "own", "operator", "project"}
    told = team.run_of("told", notes={NOTIFIED_ANNOTATION: "project/failed"})
    assert team.tell(told, count=1, operator=True).told() == [(OPS, "told", "failed")]


def test_who_may_only_write_secrets_cannot_redirect_it(team: Team) -> None:
    team.set()
    [secret] = team.secrets()
    elsewhere = b64encode(b"https://elsewhere.example.com/").decode()
    changed = {**secret, "data": {**secret["data"], "url": elsewhere}}
    team.world.patch(kinds.SECRET, NAMESPACE, objects.name(secret), {"data": changed["data"]})
    shown = team.world.client.get(team.path).json()
    assert "it was changed after the address was set" in shown["problem"] and shown["target"] == f"{CHAT}/…"
    assert team.world.client.post(f"{team.path}/test").status_code == 400
    assert team.tell(team.run_of("victim"), count=1, operator=True).told() == [(OPS, "victim", "failed")]
    assert "it was changed after the address was set" in team.notes_on("victim")[UNTOLD_ANNOTATION]
    assert "elsewhere" not in team.notes_on("victim")[UNTOLD_ANNOTATION]
    team.set()
    assert team.tell(team.run_of("later"), count=1).told() == [(CHAT, "later", "failed")]


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", '{"on": 3}', "[" * 100_000, json.dumps({"secret": "other", "on": []})]
)
def test_an_annotation_that_people_wrote_harms_nobody(team: Team, text: str) -> None:
    namespace = team.namespace
    meta = {**namespace["metadata"], "annotations": {**objects.annotations(namespace), ANNOTATION: text}}
    team.world.patch(kinds.NAMESPACE, "", NAMESPACE, {"metadata": meta})
    assert (
        "was not written by" in team.world.client.get(team.path).text
        or "too long" in team.world.client.get(team.path).text
    )
    assert team.tell(team.run_of("one"), count=1, operator=True).told() == [(OPS, "one", "failed")]
    assert ANNOTATION in team.notes_on("one")[UNTOLD_ANNOTATION]
    assert team.world.client.delete(team.path).json()["problem"] == ""


def test_a_later_project_of_the_name_does_not_inherit_it(team: Team) -> None:
    team.set()
    was = objects.uid(team.namespace)
    assert team.world.client.delete(f"/api/v1/org-unit/projects/{team.project['id']}").status_code == 202
    team.world.do(lambda: _remove_namespace(team.world))
    team.project = team.world.project()
    path = f"/api/v1/org-unit/projects/{team.project['id']}/notify"
    assert team.world.client.get(path).json()["target"] == ""
    assert team.tell(team.run_of("new"), count=0).told() == []
    team.path = path
    team.set()
    late = team.run_of("late", uid=was)
    assert team.tell(late, team.run_of("own"), count=1).told() == [(CHAT, "own", "failed")], (
        "the other run was not of this project"
    )


async def _remove_namespace(world: World) -> None:
    """No controller works here: what the namespace controller would do."""
    found = world.store.view.get(kinds.NAMESPACE, "", NAMESPACE)
    if found is not None:
        gone = {**found, "spec": {"finalizers": []}}
        await world.store.update(kinds.NAMESPACE, gone, subresource="finalize")


def test_what_waits_for_an_address_that_was_taken_back_is_not_sent(team: Team) -> None:
    team.set()
    tries: list[str] = []
    taken_back = asyncio.Event()

    async def refuse(address: Any, message: Any, judge: Any) -> Answer:
        tries.append(address.origin)
        raise Undelivered("nobody answers")

    async def pause(seconds: float) -> None:
        await taken_back.wait()

    lanes = Lanes(lambda: team.now, deliver=refuse, sleep=pause)
    notes, state = team.run_of("waits"), dict[str, Any]()

    async def begin() -> None:
        notifier = team.notifier(NotifySettings(), lanes)
        state["work"] = asyncio.create_task(notifier.run())
        notifier.consider(notes, None)
        await until_async(lambda: tries, "the first try")

    async def finish() -> None:
        taken_back.set()
        await until_async(lambda: UNTOLD_ANNOTATION in team.notes_on("waits"), "it is noted")
        state["work"].cancel()

    team.world.do(begin)
    assert team.world.client.delete(team.path).status_code == 200
    team.world.do(finish)
    assert tries == [CHAT] and "changed or taken back" in team.notes_on("waits")[UNTOLD_ANNOTATION]


@pytest.mark.parametrize("served", [ENGINES[1]], indirect=True)
def test_over_a_real_cluster_a_job_that_kubectl_made_is_told_to_its_project(served: Served) -> None:
    """To an address where jobs may not send: the job says that, which takes the Namespace's watch, the Secret and the note."""
    served.node("node-1")
    served.ok(f"rowlock project notify default http://127.0.0.1:9/{PASSWORD} --on failed")
    container = {"name": "pytorch", "image": "i", "command": ["false"]}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "posted", "namespace": "runai-default"},
        "spec": {"pytorchReplicaSpecs": {"Master": replica}},
    }  # fmt: skip
    served.do(lambda: served.store.create(kinds.PYTORCHJOB, job))
    served.until(lambda: bool(served.pods()))  # no scheduler asks for it, and the test plays its kubelet
    served.run_pods()
    served.finish(1)

    def notes() -> dict[str, str]:
        return objects.annotations(served.do(lambda: served.store.get(kinds.PYTORCHJOB, "runai-default", "posted")))

    served.until(lambda: "project/failed" in notes().get(NOTIFIED_ANNOTATION, "").split())
    assert (
        "failed, to http://127.0.0.1:9: 127.0.0.1" in notes()[UNTOLD_ANNOTATION]
        and PASSWORD not in notes()[UNTOLD_ANNOTATION]
    )
    assert "jobs may not send there" in served.run("rowlock notify test -p default")[2]
    shown = json.loads(served.ok("rowlock project notify default --json"))
    assert (shown["target"], shown["on"], shown["problem"]) == ("http://127.0.0.1:9/…", ["failed"], "")
    assert "tells nobody" in served.ok("rowlock project notify default --off")
    assert [
        one for one in served.all_of(kinds.SECRET, "runai-default") if objects.name(one).startswith("project-notify")
    ] == []
