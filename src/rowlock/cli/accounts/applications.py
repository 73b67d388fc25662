"""`application create|list|delete`: programs that log in at `POST /api/v1/token`."""

from __future__ import annotations

from urllib.parse import quote

from rowlock.cli import client
from rowlock.cli.grammar import CommandLine
from rowlock.cli.output import format_age, show, show_result, table

PATH = "/api/v1/applications"


def create(line: CommandLine) -> int:
    name = line.word("name")
    made = client.connect(line).post(PATH, {"name": name})
    hint = f"`rowlock access-rule create --application {name} --role editor -p PROJECT`"
    return show_result(
        line,
        made,
        f"Client id:      {made['clientId']}\nClient secret:  {made['clientSecret']}",
        f"The secret is not shown again. Give it a role: {hint}",
    )


def index(line: CommandLine) -> int:
    found = client.connect(line).get(PATH)["applications"]
    rows = [(one["name"], one["clientId"], format_age(one["createdAt"]), one["createdBy"]) for one in found]
    return show_result(line, found, table(("APPLICATION", "CLIENT ID", "AGE", "CREATED BY"), rows))


def delete(line: CommandLine) -> int:
    name = line.word("name")
    client.connect(line).delete(f"{PATH}/{quote(name, safe='')}")
    show(f"Application {name} deleted.")
    return 0
