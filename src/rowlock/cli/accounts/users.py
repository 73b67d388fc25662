"""`user create|list|passwd|logout|delete`: passwords come from a prompt or from stdin, never from the command line; and
`application create|list|delete`: programs that log in at `POST /api/v1/token`.
"""

from __future__ import annotations

import sys
from urllib.parse import quote

from rowlock.cli import client
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import ask, format_age, show_result, table

PATH = "/api/v1/users"
_PAGE = 500
"""The most users in one answer; it is a list, and does not say whether there are more."""


def read_password(name: str, *, is_new: bool) -> str:
    """Read a password from the terminal without echo (a new one twice), or from the first line of stdin when stdin is no
    terminal. Raises CommandError."""
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\n")
        if not password:
            raise CommandError(f"no password for {name} came from stdin: `... < FILE`, or type it at a terminal")
        return password
    import getpass

    try:
        password = getpass.getpass(f"{'New password' if is_new else 'Password'} for {name}: ")
        if is_new and getpass.getpass("Again: ") != password:
            raise CommandError("the two passwords differ: nothing was changed")
    except (EOFError, KeyboardInterrupt):
        raise CommandError("no password was typed: nothing was changed") from None
    return password


def create(line: CommandLine) -> int:
    name, server = line.word("name"), client.connect(line)
    made = server.post(PATH, {"username": name, "password": read_password(name, is_new=True)})
    hint = f"`rowlock access-rule create --user {name} --role editor -p PROJECT`"
    return show_result(line, made, f"User {name} created. Give the user a role: {hint}")


def index(line: CommandLine) -> int:
    server = client.connect(line)
    users = page = server.get(PATH, limit=_PAGE)
    while len(page) == _PAGE:
        page = server.get(PATH, limit=_PAGE, offset=len(users))
        users = [*users, *page]
    rows = [(user["username"], format_age(user["createdAt"]), user["createdBy"]) for user in users]
    return show_result(line, users, table(("USER", "AGE", "CREATED BY"), rows))


def passwd(line: CommandLine) -> int:
    name, server = line.word("name"), client.connect(line)
    server.get(_path(name))
    server.call("PUT", f"{_path(name)}/password", body={"password": read_password(name, is_new=True)})
    return show_result(
        line, {"name": name, "result": "changed"}, f"The password of {name} was changed; the user must log in again."
    )


def logout(line: CommandLine) -> int:
    name = line.word("name")
    client.connect(line).post(f"{_path(name)}/logout")
    return show_result(line, {"name": name, "result": "logged out"}, f"{name} is logged out everywhere.")


def delete(line: CommandLine) -> int:
    name, server = line.word("name"), client.connect(line)
    server.get(_path(name))
    if not line.yes and sys.stdin.isatty():
        if ask(f"Delete user {name} and the user's access rules? [y/N] ") not in ("y", "yes"):
            raise CommandError("Nothing was deleted.")
    server.delete(_path(name))
    return show_result(line, {"name": name, "result": "deleted"}, f"User {name} deleted.")


def _path(name: str) -> str:
    return f"{PATH}/{quote(name, safe='')}"


APPLICATIONS = "/api/v1/applications"


def create_application(line: CommandLine) -> int:
    name = line.word("name")
    made = client.connect(line).post(APPLICATIONS, {"name": name})
    hint = f"`rowlock access-rule create --application {name} --role editor -p PROJECT`"
    return show_result(
        line,
        made,
        f"Client id:      {made['clientId']}\nClient secret:  {made['clientSecret']}",
        f"The secret is not shown again. Give it a role: {hint}",
    )


def list_applications(line: CommandLine) -> int:
    found = client.connect(line).get(APPLICATIONS)["applications"]
    rows = [(one["name"], one["clientId"], format_age(one["createdAt"]), one["createdBy"]) for one in found]
    return show_result(line, found, table(("APPLICATION", "CLIENT ID", "AGE", "CREATED BY"), rows))


def delete_application(line: CommandLine) -> int:
    name = line.word("name")
    client.connect(line).delete(f"{APPLICATIONS}/{quote(name, safe='')}")
    return show_result(line, {"name": name, "result": "deleted"}, f"Application {name} deleted.")
