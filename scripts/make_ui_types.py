"""Write `ui/src/lib/answers.ts`, the web UI's types of answers, from `rowlock.answers`. `--check` fails when the file is not that."""

from __future__ import annotations

import ast
import inspect
import sys
from types import NoneType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from generated import REPO, write_or_check

from rowlock.answers import Json, Time, accounts, cluster, live, sweeps, workloads

TARGET = REPO / "ui" / "src" / "lib" / "answers.ts"
HEAD = "// What the server answers. `make docs` writes this file from `src/rowlock/answers/`: change those types.\n"
SCALARS = (
    (Time, "string"), (Json, "Record<string, unknown>"), (Any, "unknown"), (str, "string"), (bool, "boolean"),
    (int, "number"), (float, "number"), (NoneType, "null"),
)  # fmt: skip
TYPES = {
    name: of for module in (workloads, live, cluster, accounts, sweeps) for name, of in vars(module).items()
    if is_typeddict(of) or get_origin(of) is Literal
}  # fmt: skip


def text_of(of: Any) -> str:
    """A type in TypeScript; one with a name by its name."""
    for scalar, text in SCALARS:
        if of == scalar:
            return text
    for name, named in TYPES.items():
        if of == named:
            return name
    parts = get_args(of)
    if get_origin(of) is list:
        item = text_of(parts[0])
        return f"({item})[]" if "|" in item else f"{item}[]"
    if get_origin(of) is Literal:
        return " | ".join(f'"{word}"' for word in parts)
    return " | ".join(text_of(part) for part in parts)


def bases_of(of: Any) -> list[str]:
    """The records that a record extends. Python 3.11 keeps no bases of a TypedDict, so they are read in the source."""
    source = ast.parse(inspect.getsource(sys.modules[of.__module__]))
    classes = (node for node in source.body if isinstance(node, ast.ClassDef) and node.name == of.__name__)
    return [base.id for node in classes for base in node.bases if isinstance(base, ast.Name) and base.id in TYPES]


def declaration(name: str, of: Any) -> str:
    """A record as an interface, any other type as a name for it."""
    if not is_typeddict(of):
        return f"export type {name} = " + " | ".join(f'"{word}"' for word in get_args(of)) + ";\n"
    lines, bases = [], bases_of(of)
    inherited = {field for base in bases for field in get_type_hints(TYPES[base])}
    for field, kind in get_type_hints(of, include_extras=True).items():
        if field in inherited:
            continue
        is_optional = field in of.__optional_keys__
        lines.append(
            f"  {field}{'?' * is_optional}: {text_of(get_args(kind)[0] if get_origin(kind) is NotRequired else kind)};\n"
        )
    extends = f" extends {', '.join(bases)}" if bases else ""
    return f"export interface {name}{extends} {{\n{''.join(lines)}}}\n"


def main() -> int:
    made = HEAD + "".join("\n" + declaration(name, of) for name, of in TYPES.items())
    return write_or_check(TARGET, made, "what rowlock.answers gives")


if __name__ == "__main__":
    sys.exit(main())
