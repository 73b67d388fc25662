"""Which things are told, and in which words; by equality."""

from __future__ import annotations

import hashlib
import hmac
import json
from decimal import Decimal
from typing import Any

import pytest

from rowlock.archive.records import PhaseStep, RunRecord
from rowlock.documents.web_address import WebAddress, parse_web_address
from rowlock.errors import BadRequest
from rowlock.rest.notifications.message import chat_text, make_message
from rowlock.rest.notifications.notices import Notice, notice_of_event, notices_of_phases
from rowlock.workloads.objects import Submitter, plan_submit
from rowlock.workloads.projects import Project
from rowlock.workloads.run_options.notify import NOTIFY_ANNOTATION
from rowlock.workloads.submission import parse_submission

T = 1_800_000_000.0


def steps(*pairs: tuple[float, str]) -> list[PhaseStep]:
    return [PhaseStep(T + at, phase) for at, phase in pairs]


def test_a_start_is_told_after_a_wait_and_only_then() -> None:
    quick = steps((0, "Creating"), (1, "Pending"), (3, "Initializing"), (4, "Running"))
    assert notices_of_phases(quick, "") == []
    waited = steps(
        (0, "Creating"), (1, "Pending"), (300, "Initializing"), (303, "Running"), (400, "Degraded"), (500, "Running")
    )
    assert notices_of_phases(waited, "") == [Notice("started-1", "started", T + 303, "started after waiting 5 min.")]
    again = [*waited, *steps((600, "Pending"), (615, "Running"))]
    assert [(n.key, n.sentence) for n in notices_of_phases(again, "")][1] == (
        "started-2",
        "started after waiting 15 s.",
    )
    stopped = steps((0, "Creating"), (1, "Pending"), (50, "Stopped"), (500, "Resuming"), (501, "Running"))
    assert notices_of_phases(stopped, "") == []


def test_the_end_is_told_with_its_verdict_once_that_is_known() -> None:
    failed = steps((0, "Creating"), (1, "Running"), (62, "Failed"))
    assert notices_of_phases(failed, "") == []
    assert notices_of_phases(failed, "rank 1 ran out of memory.") == [
        Notice("failed", "failed", T + 62, "failed: rank 1 ran out of memory.")
    ]
    gone = [*failed, *steps((63, "Deleting"), (64, "Deleted"))]
    assert notices_of_phases(gone, "rank 1 ran out of memory.") == notices_of_phases(
        failed, "rank 1 ran out of memory."
    )
    done = steps((0, "Creating"), (1, "Running"), (62, "Completed"))
    assert [n.sentence for n in notices_of_phases(done, "It completed; no rank failed.")] == ["completed after 61 s."]
    assert [n.sentence for n in notices_of_phases(done, "It completed, but the loss of rank 0 became NaN.")] == [
        "completed after 61 s, but the loss of rank 0 became NaN."
    ]
    assert notices_of_phases(steps((0, "Creating"), (5, "Deleted")), "It was deleted while it was creating.") == []


def event(reason: str, message: str, kind: str = "PyTorchJob", at: str = "2027-01-15T08:00:00Z") -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": at, "involvedObject": {"kind": kind}}


def test_events_about_the_job_are_told_and_no_others() -> None:
    assert notice_of_event(event("JobHangs", "Ranks 0-3 wait for rank 4.")) == Notice(
        f"hangs-{T:.0f}", "hangs", T, "hangs: Ranks 0-3 wait for rank 4."
    )
    assert notice_of_event(event("LossNotFinite", "The loss became NaN at step 30.")) == Notice(
        f"nan-{T:.0f}", "nan", T, "The loss became NaN at step 30."
    )
    evicted = notice_of_event(event("Evict", "Pod a/b was preempted for team-b.\nWith more lines."))
    assert evicted is not None and evicted.sentence.endswith("room: Pod a/b was preempted for team-b.")
    assert notice_of_event(event("Evict", "x", "Pod")) is None
    assert notice_of_event(event("Evict", "x", "PodGroup")) is None
    assert notice_of_event(event("Scheduled", "x")) is None
    assert notice_of_event(event("JobHangs", "x", at="yesterday")) is None


def test_a_message_is_json_that_chats_show_and_receivers_can_check() -> None:
    record = RunRecord("u-1", "w-1", "train", "runai-a", "ns", "a", "PyTorchJob", T)
    notice = Notice("failed", "failed", T, "failed: <!channel> & @all")
    message = make_message(notice, record, "k" * 32)
    assert json.loads(message.body) == {
        "text": "train (project a) failed: &lt;!channel&gt; &amp; @\u200ball", "id": "u-1/failed", "event": "failed",
        "at": "2027-01-15T08:00:00.000000Z", "job": "train", "project": "a", "namespace": "runai-a", "kind": "PyTorchJob",
        "workloadId": "w-1", "sentence": "failed: <!channel> & @all",
    }  # fmt: skip
    expected = hmac.new(b"k" * 32, message.body, hashlib.sha256).hexdigest()
    assert message.headers["X-Rowlock-Signature"] == f"sha256={expected}"
    assert "X-Rowlock-Signature" not in make_message(notice, record).headers
    assert chat_text("a@b.de, @here") == "a@\u200bb.de, @\u200bhere"


def test_addresses_are_parsed_strictly_and_shown_without_their_secret() -> None:
    parsed = parse_web_address("https://Hooks.example.com/services/T0/SECRET?x=1")
    assert parsed == WebAddress("https", "hooks.example.com", 443, "/services/T0/SECRET?x=1")
    assert parsed.public_form == "https://hooks.example.com/…"
    assert parse_web_address("http://[::1]:8080").public_form == "http://[::1]:8080/"


@pytest.mark.parametrize(
    "text",
    [
        "", "example.com/hook", "file:///etc/passwd", "gopher://a/", "https://", "https:///path", "http://a:0/", "http://a:99999/",
        "http://user:pw@host/", "http://host/a b", "http://host/\r\nX: 1", "http://host/#frag", "http://-host/", "http://[::1", "http://hö.de/",
        "https://h/" + "a" * 2000,
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_web_address(text)
    assert "pw" not in str(refused.value)


def request(**more: Any) -> dict[str, Any]:
    spec = {"image": "rowlock.dev/host", "distributedFramework": "PyTorch", "noWorkers": True}
    return {"name": "train", "projectId": "a", "spec": spec, **more}


def test_the_address_is_in_a_secret_and_nowhere_else() -> None:
    url, key = "https://hooks.example.com/T0/SECRET", "0123456789abcdef-key"
    body = request(
        notify={"url": url, "key": key, "on": ["failed", "hangs"]},
        submitCommand=f"rowlock run --notify {url} -- python t.py",
    )
    project = Project("1", "a", "runai-a", "a", "default", "", Decimal(0), Decimal(-1))
    plan = plan_submit(parse_submission(body), project, Submitter("0123456789", "ana"), [])
    assert [secret["data"].keys() for secret in plan.secrets] == [{"url", "key", "on"}]
    assert plan.job["metadata"]["annotations"][NOTIFY_ANNOTATION] == plan.secrets[0]["metadata"]["name"]
    shown = json.dumps(plan.job)
    assert "SECRET" not in shown and key not in shown and "rowlock run --notify (not kept) -- python" in shown


@pytest.mark.parametrize(
    ("notify", "words"),
    [
        ({"url": "nowhere"}, "notify.url: must begin with https://"),
        ({"url": "https://h/x", "key": "short"}, "notify.key: must have 16 to 256"),
        ({"url": "https://h/x", "on": ["fails"]}, "notify.on: may have started, failed"),
        ({"url": "https://h/x", "on": "failed"}, "notify.on: must be a list"),
        ({"uri": "https://h/x"}, "notify.uri: there is no such field"),
        ({"url": "mailto:a"}, "notify.url: is no plain mailbox"),
        ({"url": "mailto:a@b.c", "key": "0123456789abcdef"}, "notify.key: signs what goes to an address of the web"),
        ({"url": "command:/bin/true"}, "notify.url: may be a command for the operator alone"),
        ("https://h/x", "notify: must be an object"),
    ],
)
def test_a_mistake_is_refused_with_a_sentence(notify: Any, words: str) -> None:
    with pytest.raises(BadRequest, match=words.replace(".", r"\.")):
        parse_submission(request(notify=notify))
