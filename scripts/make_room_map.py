"""Write `docs/design/rooms.md`, the map of the house, from the first line of every room. `--check` fails when it is stale."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from generated import REPO, write_or_check

PACKAGE = REPO / "src" / "rowlock"
PAGE = REPO / "docs" / "design" / "rooms.md"
WORDS = ("errors", "objects", "kinds", "selectors", "quantity", "api", "submit_fields", "server_settings")
ROOMS = (
    "answers", "documents", "training", "scheduling", "workloads", "sweeps", "gangs", "diagnosis", "curves", "system", "controllers", "archive", "accounts", "audit", "authentication", "authorization",
    "http_server", "storage", "apiserver", "webhooks", "kubelet", "diagnostics",
    "kube", "rest", "simulator", "runtime", "sdk", "metrics", "browser", "identity", "kube_evidence", "kube_operator",
)  # fmt: skip
"""In the order of the storeys."""
ABOVE = ("server_files", "cluster", "kube_scheduler", "kube_users", "assembly", "kube_assembly", "serve")
HEAD = """# The rooms

One line a room, in the order of the storeys: a room imports only what stands above it here, and `cli` imports nothing
of the rest but `submit_fields.py` and `server_settings.py` (it speaks HTTP). The first lines of a room's `__init__.py` say what it may import and where to begin
reading. `tests/test_house.py` holds the storeys; the [glossary](glossary.md) has the words. `make docs` makes this page.

| room | what lives there |
|---|---|
"""


def first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]


def table_rows() -> Iterator[tuple[str, str]]:
    if unlisted := {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {*ROOMS, "cli"}:
        sys.exit(f"{', '.join(sorted(unlisted))}: a room that ROOMS does not list")
    for word in WORDS:
        yield f"`{word}.py`", first_line(PACKAGE / f"{word}.py")
    for room in (*ROOMS, "cli"):
        yield f"**`{room}/`**", first_line(PACKAGE / room / "__init__.py")
        for inner in sorted((PACKAGE / room).glob("*/__init__.py")):
            yield f"`{room}/{inner.parent.name}/`", first_line(inner)
    for module in ABOVE:
        yield f"`{module}.py`", first_line(PACKAGE / f"{module}.py")


def room_map() -> str:
    return HEAD + "".join(f"| {name} | {line} |\n" for name, line in table_rows())


def main() -> int:
    return write_or_check(PAGE, room_map(), "what the rooms say of themselves")


if __name__ == "__main__":
    sys.exit(main())
