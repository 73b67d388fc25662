"""`project notify`: show, set and take back the address that a project tells what happens to its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.client import StatusError
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import PROJECTS, find_project
from rowlock.cli.output import show_result
from rowlock.cli.run.notify import read_value
from rowlock.cli.submit.sending import message_in_flags

if TYPE_CHECKING:
    from rowlock.answers.cluster import ProjectNotify

_FLAG_OF = {"url": "URL", "key": "--key-file", "on": "--on"}
"""Field of the request → what the user types for it."""


def notify(line: CommandLine) -> int:
    name, url = _words(line)
    body = _request(line, url)
    if line.off and url:
        raise CommandError("--off takes the address back, and URL sets one: leave one of them out", 2)
    server = client.connect(line)
    path = f"{PROJECTS}/{find_project(server, name)['id']}/notify"
    answer: ProjectNotify
    try:
        if line.off:
            answer = server.delete(path)
        elif url:
            answer = server.call("PUT", path, body=body)
        else:
            answer = server.get(path)
    except StatusError as refusal:
        raise CommandError(message_in_flags(refusal, _FLAG_OF)) from None
    return show_result(line, answer, *_sentences(answer, is_new=bool(url)))


def _words(line: CommandLine) -> tuple[str, str]:
    if not 1 <= len(line.words) <= 2:
        raise CommandError(f"`{line.program} {line.verb}` needs the project's name, and no more than one address", 2)
    return line.words[0], line.words[1] if len(line.words) == 2 else ""


def _request(line: CommandLine, url: str) -> dict[str, Any]:
    """The body that sets this address; {} without one. Raises CommandError."""
    for flag, value in (("--key-file", line.key_file), ("--on", line.on)):
        if value and not url:
            raise CommandError(f"{flag} goes with an address: `rowlock project notify {line.words[0]} URL {flag} …`", 2)
    if not url:
        return {}
    body: dict[str, Any] = {"url": read_value(url[1:], "URL") if url.startswith("@") else url}
    if line.key_file:
        body["key"] = read_value(line.key_file, "--key-file")
    if line.on:
        body["on"] = [word.strip() for word in line.on.split(",")]
    return body


def _sentences(answer: ProjectNotify, *, is_new: bool) -> tuple[str, ...]:
    name, target, problem = answer["projectName"], answer["target"], answer["problem"]
    if not target and not problem:
        return (f"Project {name} tells nobody: `rowlock project notify {name} URL` names an address.",)
    if problem:
        again = f"Nothing is told: {problem}. `rowlock project notify {name} URL` sets the address again."
        return (f"Project {name} has the address {target}.", again) if target else (again,)
    signed = ", signed" if answer["signed"] else ""
    told = f"Project {name} tells {target} of its jobs: {', '.join(answer['on'])}{signed}."
    return (told, f"Try it with `rowlock notify test -p {name}`.") if is_new else (told,)
