"""Messages that a program of this machine takes: e-mail by `sendmail`, and the command of `rowlock up --notify command:/PATH`.

A program has the time of a webhook, then its whole group is killed. It gets a small environment, none of the server's descriptors, and no
shell reads its command line."""

from __future__ import annotations

import asyncio
import email.policy
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.message import EmailMessage

from rowlock.documents.notify_address import MailAddress, NotifyProgram
from rowlock.rest.notifications.message import Message
from rowlock.rest.notifications.webhook import TIMEOUT, Answer, Judge, Undelivered

_THREADS = ThreadPoolExecutor(16, "notify-programs")
_PLACES = ("/usr/sbin", "/usr/lib", "/usr/bin", "/usr/local/sbin", "/usr/local/bin")
"""Where a sendmail is, also for a server whose PATH has no sbin."""
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")
_TOLD_VARIABLES = {"ROWLOCK_EVENT": "event", "ROWLOCK_JOB": "job", "ROWLOCK_PROJECT": "project"}
_RETRIED = frozenset({71, 74, 75})
"""Exit codes of sysexits.h that may pass: of the operating system, of input and output, and "try again"."""
_LONGEST_ANSWER, _CHUNK = 1000, 65536
_PIPE_LEFT_OPEN = 0.2
"""Seconds for which output is awaited after the program's end: what it started in the background may keep the pipe open."""


def find_sendmail() -> str:
    """The path of sendmail, or of what stands in for it: msmtp, Postfix, Exim; "" = there is none."""
    return shutil.which("sendmail") or shutil.which("sendmail", path=":".join(_PLACES)) or ""


async def hand_over(address: MailAddress | NotifyProgram, message: Message, judge: Judge) -> Answer:
    """Give the message to a program; status 0 and the beginning of its output. Raises Undelivered."""
    fields = json.loads(message.body)
    if isinstance(address, MailAddress):
        if reason := judge(address, ""):
            raise Undelivered(
                f"{reason}: the operator can allow it with `rowlock up --notify-allow @{address.domain}`", is_final=True
            )
        if not (sendmail := find_sendmail()):
            raise Undelivered(
                "the server's machine has no sendmail: install a mail transfer agent, such as msmtp-mta", is_final=True
            )
        command, text = [sendmail, "-i", "--", address.mailbox], mail_of(address, fields, message.headers)
    else:
        command, text = [address.path], message.body
    loop = asyncio.get_running_loop()
    code, output = await loop.run_in_executor(_THREADS, run_program, command, text, _variables(fields))
    if code:
        how = f"was killed with signal {-code}" if code < 0 else f"ended with exit code {code}"
        name = os.path.basename(command[0])
        raise Undelivered(f"{name} {how}" + (f": {output}" if output else ""), is_final=code not in _RETRIED)
    return Answer(0, output)


def mail_of(address: MailAddress, fields: Mapping[str, str], headers: Mapping[str, str]) -> bytes:
    """An e-mail to this address with the fields of a message's body; `headers` are the message's."""
    about = f"{fields['job']} (project {fields['project']}): {fields['event']}" if "job" in fields else "a test"
    mail = EmailMessage(policy=email.policy.default.clone(max_line_length=200))
    mail["To"] = address.mailbox
    mail["Subject"] = f"rowlock: {about}"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no absence note answers it
    for name in ("User-Agent", "X-Rowlock-Event"):
        mail[name] = headers[name]
    rows = [f"{name}: {fields[name]}" for name in ("job", "project", "kind", "workloadId", "at") if fields.get(name)]
    mail.set_content("\n".join((fields.get("sentence") or fields["text"], "", *rows, "")))
    return bytes(mail)


def _variables(fields: Mapping[str, str]) -> dict[str, str]:
    told = {variable: fields[name] for variable, name in _TOLD_VARIABLES.items() if name in fields}
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | told


def run_program(command: list[str], text: bytes, variables: dict[str, str]) -> tuple[int, str]:
    """Run a program with this text at its standard input. Returns its exit code (below 0: minus the signal), and the first line of its
    output, cut. Raises Undelivered when it cannot be run, or has no end within `TIMEOUT`."""
    deadline = time.monotonic() + TIMEOUT
    with tempfile.TemporaryFile() as given:
        given.write(text)
        given.seek(0)
        try:
            process = subprocess.Popen(
                command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", env=variables,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Undelivered(f"{os.path.basename(command[0])} cannot be run: {error.strerror}") from None
    assert process.stdout is not None
    try:
        with process.stdout:
            output = _read_output(process, process.stdout.fileno(), deadline)
        code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Undelivered(f"{os.path.basename(command[0])} did not end within {TIMEOUT:.0f} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    first = output.decode(errors="replace").strip().partition("\n")[0]
    return code, "".join(c if c.isprintable() else " " for c in first)[:300]


def _read_output(process: subprocess.Popen[bytes], pipe: int, deadline: float) -> bytes:
    """Read until the program has ended or the deadline has come; keep the beginning."""
    kept, has_ended = b"", False
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([pipe], [], [], min(left, _PIPE_LEFT_OPEN))
        if ready:
            piece = os.read(pipe, _CHUNK)
            kept += piece[: _LONGEST_ANSWER - len(kept)]
            if not piece:
                break
        elif has_ended:
            break
        has_ended = process.poll() is not None
    return kept
