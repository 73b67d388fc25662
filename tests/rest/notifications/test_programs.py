"""E-mail by sendmail and the operator's command: what a program is given, and programs that fail, hang, flood or leave children behind."""

from __future__ import annotations

import asyncio
import email
import email.policy
import os
import time
from pathlib import Path

import pytest
from tests.waiting import until

from rowlock.documents.notify_address import MailAddress, NotifyProgram, parse_notify_address
from rowlock.documents.web_address import WebAddress
from rowlock.errors import BadRequest
from rowlock.rest.notifications import programs
from rowlock.rest.notifications.message import Message, signed_message
from rowlock.rest.notifications.receivers import deliver
from rowlock.rest.notifications.settings import (
    NotifySettings,
    judge_of_operator,
    notify_settings,
    parse_operator_address,
)
from rowlock.rest.notifications.webhook import Answer, Undelivered
from rowlock.server_settings import ServerSettings

MESSAGE = signed_message(
    {
        "text": "train (project vision) failed: it raised \N{MULTIPLICATION SIGN}",
        "id": "u/1",
        "event": "failed",
        "at": "2026-11-30T10:00:00.000000Z",
        "job": "train",
        "project": "vision",
        "namespace": "runai-vision",
        "kind": "PyTorchJob",
        "workloadId": "7",
        "sentence": "failed: it raised \N{MULTIPLICATION SIGN}\n.\nSubject: not a header",
    },
    "",
)


def script(directory: Path, text: str, name: str = "program") -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def sendmail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sendmail that keeps what it gets; returns its directory."""
    script(
        tmp_path,
        f'cat > {tmp_path}/mail.new; echo "$@" > {tmp_path}/flags; mv {tmp_path}/mail.new {tmp_path}/mail',
        "sendmail",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def tell(
    address: MailAddress | NotifyProgram, settings: NotifySettings | None = None, message: Message = MESSAGE
) -> Answer:
    return asyncio.run(deliver(address, message, settings.judge_of_job if settings else judge_of_operator))


def test_an_e_mail_has_the_sentence_and_no_header_of_the_job(sendmail: Path) -> None:
    assert tell(MailAddress("ops@example.com")) == Answer(0, "")
    mail = email.message_from_bytes((sendmail / "mail").read_bytes(), policy=email.policy.default)
    assert (mail["To"], mail["Subject"]) == ("ops@example.com", "rowlock: train (project vision): failed")
    assert (mail["Auto-Submitted"], mail["X-Rowlock-Event"]) == ("auto-generated", "failed")
    body = mail.get_body()
    assert body is not None
    text = body.get_content()
    assert text.startswith(
        "failed: it raised \N{MULTIPLICATION SIGN}\n.\nSubject: not a header\n\njob: train\nproject: vision\n"
    )
    assert (sendmail / "flags").read_text() == "-i -- ops@example.com\n"


def test_a_job_may_mail_only_where_the_operator_allows_it(sendmail: Path) -> None:
    allowed = notify_settings(ServerSettings(Path("/d"), notify_allow="chat.internal:8065,@Example.com"))
    assert allowed.allowed == {("chat.internal", 8065)}
    assert tell(MailAddress("ana@EXAMPLE.com"), allowed).is_good
    with pytest.raises(
        Undelivered,
        match=r"jobs may not send e-mail to @elsewhere\.org: .* `rowlock up --notify-allow @elsewhere\.org`",
    ):
        tell(MailAddress("ana@elsewhere.org"), allowed)


def test_without_sendmail_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "_PLACES", (str(tmp_path),))
    with pytest.raises(Undelivered, match="no sendmail: install a mail transfer agent") as refused:
        tell(MailAddress("a@example.com"))
    assert refused.value.is_final
    with pytest.raises(BadRequest, match="this machine has no sendmail"):
        notify_settings(ServerSettings(Path("/d"), notify="mailto:a@example.com"))


def test_a_command_gets_the_message_and_little_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_PASSWORD", "secret")
    program = script(tmp_path, f'cat > {tmp_path}/got; env > {tmp_path}/env; echo "told $ROWLOCK_JOB"')
    assert tell(NotifyProgram(str(program))) == Answer(0, "told train")
    assert (tmp_path / "got").read_bytes() == MESSAGE.body
    variables = (tmp_path / "env").read_text()
    assert "ROWLOCK_EVENT=failed\n" in variables and "secret" not in variables


@pytest.mark.parametrize(
    ("text", "reason", "is_final"),
    [
        ("echo no such channel; exit 1", "program ended with exit code 1: no such channel", True),
        ("exit 75", "program ended with exit code 75", False),
        ("kill -9 $$", "program was killed with signal 9", True),
    ],
)
def test_how_a_command_ends_is_judged(tmp_path: Path, text: str, reason: str, is_final: bool) -> None:
    with pytest.raises(Undelivered) as failed:
        tell(NotifyProgram(str(script(tmp_path, text))))
    assert (failed.value.reason, failed.value.is_final) == (reason, is_final)


def test_a_command_that_has_gone_is_given_up_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(Undelivered, match="gone cannot be run: No such file or directory"):
        tell(NotifyProgram(str(tmp_path / "gone")))


def test_a_command_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "child"

    class Clock:
        """The time is over as soon as the child is there, however long a shell takes to start."""

        @staticmethod
        def monotonic() -> float:
            return 1000.0 if told.exists() and told.read_text().endswith("\n") else 0.0

    monkeypatch.setattr(programs, "time", Clock)
    program = script(tmp_path, f"sleep 600 & echo $! > {told}; wait")
    with pytest.raises(Undelivered, match="did not end within"):
        tell(NotifyProgram(str(program)))
    child = int(told.read_text())
    until(lambda: not Path(f"/proc/{child}/cwd").exists(), "the child is killed")


def test_a_flood_of_output_is_read_and_cut(tmp_path: Path) -> None:
    answer = tell(NotifyProgram(str(script(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x"))))
    assert answer == Answer(0, "x" * 300)


def test_what_a_command_leaves_behind_is_not_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "TIMEOUT", 100.0)
    began = time.monotonic()
    program = script(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; echo done")
    assert tell(NotifyProgram(str(program))) == Answer(0, "done")
    assert time.monotonic() - began < 90
    os.kill(int((tmp_path / "child").read_text()), 9)


@pytest.mark.parametrize(
    "text",
    ["mailto:", "mailto:ana", "mailto:ana@", "mailto:-f@example.com", "mailto:a@b.c,d@e.f", "mailto:a@b.c?subject=x", "mailto:a b@c.d",
     "mailto:a@-b.c", "mailto:a@b.c\nBcc: d@e.f", "mailto:a@b..c", "command:/bin/true", "tel:112"],
)  # fmt: skip
def test_what_a_job_cannot_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_notify_address(text)


def test_addresses_of_each_kind() -> None:
    assert parse_notify_address("mailto:Ana.B+runs@Example.com") == MailAddress("Ana.B+runs@Example.com")
    assert MailAddress("Ana@Example.com").origin == "mailto:@example.com"
    assert parse_operator_address("https://h/x") == WebAddress("https", "h", 443, "/x")
    assert parse_operator_address("command:/bin/true") == NotifyProgram("/bin/true")


def test_a_command_must_be_a_program_that_others_cannot_change(tmp_path: Path) -> None:
    plain, open_to_all = tmp_path / "plain", script(tmp_path, "true", "open")
    plain.touch(mode=0o644)
    open_to_all.chmod(0o777)
    for text, words in (
        ("command:true", "by its whole path"),
        (f"command:{tmp_path}/gone", "cannot be run: No such file"),
        (f"command:{plain}", "is no program: `chmod \\+x`"),
        (f"command:{tmp_path}", "is no program"),
        (f"command:{open_to_all}", "everybody may change"),
    ):
        with pytest.raises(BadRequest, match=words):
            notify_settings(ServerSettings(Path("/d"), notify=text))


def test_only_the_web_is_signed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef")
    with pytest.raises(BadRequest, match="leave it out"):
        notify_settings(ServerSettings(Path("/d"), notify="command:/bin/true", notify_key_file=tmp_path / "key"))
