"""`runai login user|application`, `logout`, `whoami`: whose token the command lines send."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from tests.rest.served import EmbeddedServed, call

from rowlock.cli.session import FILE_NAME

PASSWORD = "correct horse"


def _log_in(served: EmbeddedServed) -> None:
    served.post("/api/v1/users", {"username": "bob", "password": PASSWORD})
    assert served.ok(["runai", "login", "user", "-u", "bob", "-p", PASSWORD]) == "Logged in successfully\n"


def test_a_person_logs_in_with_a_password_and_out_again(served: EmbeddedServed) -> None:
    assert served.ok("runai whoami") == "User: ana\nLogged in Id: ana\n"
    _log_in(served)
    session = served.data / FILE_NAME
    assert session.stat().st_mode & 0o777 == 0o600 and PASSWORD not in session.read_text()
    token = base64.b64decode(json.loads(session.read_text())["accessToken"]).decode()
    assert served.ok("runai auth get-token") == f"{token}\n"
    assert served.ok("runai whoami").startswith("User: bob\nLogged in Id: bob\nUntil: ")
    served.node("a", 1)
    served.ok("runai pytorch submit j -i x")
    assert served.ok("runai distributed list --no-headers --columns submittedBy") == "bob\n"
    assert served.ok("runai logout") == "Logged out successfully\n"
    assert served.ok("runai whoami").startswith("User: ana\n")
    assert "Nobody is logged in here" in served.ok("runai logout")


def test_a_token_that_was_ended_says_how_to_log_in_again(served: EmbeddedServed) -> None:
    _log_in(served)
    served.principals.clear()
    code, _, err = served.run("runai distributed list")
    assert code == 1 and "the token has expired" in err and "`runai login user -u bob`" in err


def test_an_application_with_a_saved_secret_logs_in_by_itself(served: EmbeddedServed) -> None:
    served.token_seconds = 0
    line = ["runai", "login", "application", "--client-id", "ci", "--secret", "secret of ci"]
    served.ok(line)
    code, _, err = served.run("runai whoami")
    assert code == 1 and "log in again with `runai login application --client-id ci`" in err
    served.ok([*line, "--save"])
    said = served.ok("runai whoami")
    assert said.startswith("User: app:ci\nLogged in Id: app:ci\nUntil: ") and "renewed by itself" in said


def test_a_server_elsewhere(served: EmbeddedServed, tmp_path: Path) -> None:
    """Another machine's data directory has the address and a session, and no server of its own."""
    served.post("/api/v1/users", {"username": "bob", "password": PASSWORD})
    other = tmp_path / "elsewhere"
    other.mkdir(mode=0o700)
    url = json.loads((served.data / "server.json").read_text())["url"]
    (other / "config.json").write_text(json.dumps({"control_plane": {"url": url}}))
    code, _, err = call("runai", ["login"], other, served.capsys)
    assert code == 1 and "`runai login user -u NAME`" in err
    code, out, _ = call("rowlock", ["whoami"], other, served.capsys)
    assert (code, out) == (1, "You are currently not logged in\n")
    assert call("runai", ["login", "user", "-u", "bob", "-p", PASSWORD], other, served.capsys)[0] == 0
    assert f"{url} (as bob)" in call("rowlock", ["status"], other, served.capsys)[1]
    line = ["run", "-d", "--name", "far", "--", "python", "-c", "1"]
    assert call("rowlock", line, other, served.capsys)[0] == 0, "no server of its own is started"
    assert not (other / "server.json").exists() and "far" in served.ok("rowlock list")
    code, _, err = call("rowlock", [*line[:2], "--simulated-gpus", "1", *line[2:]], other, served.capsys)
    assert code == 2 and "leave it out" in err
    assert call("runai", ["whoami"], other, served.capsys)[1].startswith("User: bob\nLogged in Id: bob\nUntil: ")
