"""`application create|list|delete`: programs that log in at `POST /api/v1/token`."""

from __future__ import annotations

from urllib.parse import quote

from rowlock.cli import client
from rowlock.cli.grammar import CommandLine
from rowlock.cli.output import format_age, show, show_json, table

PATH = "/api/v1/applications"


def create(line: CommandLine) -> int:
    """Create an application and print its secret, once."""
    name = line.word("name")
    made = client.connect(line).post(PATH, {"name": name})
    if line.json:
        show_json(made)
        return 0
    show(f"Client id:      {made['clientId']}\nClient secret:  {made['clientSecret']}")
    show(
        f"The secret is not shown again. Give it a role: `rowlock access-rule create --application {name} --role editor -p PROJECT`"
    )
    return 0


def index(line: CommandLine) -> int:
    """List applications."""
    found = client.connect(line).get(PATH)["applications"]
    if line.json:
        show_json(found)
    else:
        rows = [(one["name"], one["clientId"], format_age(one["createdAt"]), one["createdBy"]) for one in found]
        show(table(("APPLICATION", "CLIENT ID", "AGE", "CREATED BY"), rows))
    return 0


def delete(line: CommandLine) -> int:
    """Delete an application. Its tokens end."""
    name = line.word("name")
    client.connect(line).delete(f"{PATH}/{quote(name, safe='')}")
    show(f"Application {name} deleted.")
    return 0
