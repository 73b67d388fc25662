"""Prints lists of the second generation: tables with a rule, JSON, YAML or the server's raw answer, with chosen columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from rowlock.cli.client import ServerClient
from rowlock.cli.context import read_config, update_config
from rowlock.cli.grammar import CommandError, CommandLine, is_digits, suggest_nearest
from rowlock.cli.output import show, show_json, tell

MAX_PAGE = 500
RULE = "─"
_REMEMBERED = "columns"
"""Key in the configuration: {command: the columns that --set-default-columns chose for it}."""

T = TypeVar("T")


class Column(NamedTuple, Generic[T]):
    """A column of a list. `name`: its name in --columns. `width`: its minimum width in characters, as in Run:ai's table."""

    name: str
    title: str
    read: Callable[[T], Any]
    width: int = 0
    is_shown: bool = True


def show_yaml(value: Any) -> None:
    """Print a value as YAML, without sorting its keys."""
    import yaml

    show(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))


def ruled_table(columns: Sequence[Column[T]], rows: Sequence[T], *, header: bool = True) -> str:
    """A table with title-case headers, a rule of the table's full width, and at least two spaces between columns."""
    cells = [[str(column.read(row)) for column in columns] for row in rows]
    titles = [column.title for column in columns]
    lines = [titles, *cells] if header else cells
    widths = [max([column.width, *(len(line[n]) + 2 for line in lines)]) for n, column in enumerate(columns)]
    text = ["".join(f"{cell:{w}}" for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    if header:
        text.insert(1, RULE * (sum(widths[:-1]) + len(titles[-1]) if not rows else max(len(line) for line in text)))
    return "\n".join(text)


def is_table(line: CommandLine) -> bool:
    """Whether the command line and configuration ask for a table. Raises CommandError for two output formats."""
    return _chosen_form(line) == "table"


def _chosen_form(line: CommandLine) -> str:
    form = [name for name in ("json", "yaml", "raw", "table") if getattr(line, name)]
    if len(form) > 1:
        raise CommandError(f"--{form[0]} and --{form[1]} exclude each other: give one of them", 2)
    return form[0] if form else str(read_config(line).get("output") or "table")


def show_list(line: CommandLine, columns: Sequence[Column[T]], items: Sequence[T], body: Any = None) -> int:
    """Print the items in the requested format: --json, --yaml, --raw, else a table of the chosen columns. Returns 0."""
    wanted = _chosen_form(line)
    chosen = chosen_columns(line, columns)
    if line.set_default_columns:
        _remember_columns(line, chosen)
    if wanted == "raw":
        show_json(list(items) if body is None else body)
    elif wanted in ("json", "yaml"):
        picked = [{c.name: c.read(item) for c in chosen} for item in items] if line.columns else list(items)
        (show_json if wanted == "json" else show_yaml)(picked)
    elif text := ruled_table(chosen, items, header=not line.no_headers):
        show(text)
    return 0


def chosen_columns(line: CommandLine, columns: Sequence[Column[T]]) -> list[Column[T]]:
    """The columns of --columns, by name or title; else the default ones. Raises CommandError for an unknown column."""
    words = line.columns or (read_config(line).get(_REMEMBERED) or {}).get(line.verb)
    if not words or (line.set_default_columns and not line.columns):
        return [column for column in columns if column.is_shown]
    by_word = {word: c for c in reversed(columns) for word in (c.title.lower(), c.name.lower())}
    chosen = []
    for word in (word.strip() for text in words for word in text.split(",")):
        if word.lower() not in by_word:
            names = [c.name for c in columns]
            raise CommandError(
                f"there is no column {word}.{suggest_nearest(word, names)} Known: {', '.join(names)}.", 2
            )
        chosen.append(by_word[word.lower()]._replace(width=0))
    return chosen


def _remember_columns(line: CommandLine, chosen: Sequence[Column[Any]]) -> None:
    """Store the columns of --columns as the default of this command; without --columns, delete the stored default."""
    kept = {verb: names for verb, names in (read_config(line).get(_REMEMBERED) or {}).items() if verb != line.verb}
    update_config(
        line, **{_REMEMBERED: kept | ({line.verb: [column.name for column in chosen]} if line.columns else {})}
    )


def fetch_page(line: CommandLine, server: ServerClient, path: str, name: str, **query: Any) -> list[Any]:
    """The items of a paged list: all, or the part that --max-items, --limit, --offset and --next-token select."""
    token = line.next_token or ""
    if token and not is_digits(token):
        raise CommandError(f"--next-token {token}: a token is what an earlier list ended with, a number", 2)
    limits = [n for n in (line.max_items, line.limit) if n is not None]
    if any(n < 1 for n in (*limits, line.page_size)) or line.offset < 0:
        raise CommandError("--max-items, --limit and --page-size must be at least 1, and --offset no less than 0", 2)
    most = min(limits, default=None) if not line.no_pagination else None
    offset: int | None = int(token or line.offset)
    items: list[dict[str, Any]] = []
    while offset is not None and (most is None or len(items) < most):
        page_size = min(MAX_PAGE, line.page_size, most - len(items) if most is not None else MAX_PAGE)
        body = server.get(path, offset=offset, limit=page_size, **query)
        items += body[name]
        offset = body.get("next")
    if offset is not None:
        tell(f"There are more: --next-token {offset}")
    return items


def slice_items(line: CommandLine, items: Sequence[T]) -> list[T]:
    """Apply --max-items, --limit, --offset and --next-token to a list that the server returns without paging."""
    limits = [n for n in (line.max_items, line.limit) if n is not None]
    start = int(line.next_token) if is_digits(line.next_token or "") else line.offset
    return list(items)[start : start + min(limits) if limits else None]
