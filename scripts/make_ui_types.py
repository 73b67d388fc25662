"""Write `ui/src/lib/answers.ts`, the web UI's types of answers, from `rowlock.answers`. `--check` fails when the file is not that."""

from __future__ import annotations

import sys
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from rowlock.answers import Json, Time, accounts, cluster, live, workloads

REPO = Path(__file__).resolve().parents[1]
TARGET = REPO / "ui" / "src" / "lib" / "answers.ts"
HEAD = "// What the server answers. `make docs` writes this file from `src/rowlock/answers/`: change those types.\n"
SCALARS = (
    (Time, "string"), (Json, "Record<string, unknown>"), (Any, "unknown"), (str, "string"), (bool, "boolean"),
    (int, "number"), (float, "number"), (NoneType, "null"),
)  # fmt: skip
TYPES = {
    name: of for module in (workloads, live, cluster, accounts) for name, of in vars(module).items()
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


def declaration(name: str, of: Any) -> str:
    """A record as an interface, any other type as a name for it."""
    if not is_typeddict(of):
        return f"export type {name} = " + " | ".join(f'"{word}"' for word in get_args(of)) + ";\n"
    lines = []
    for field, kind in get_type_hints(of, include_extras=True).items():
        is_optional = field in of.__optional_keys__
        lines.append(
            f"  {field}{'?' * is_optional}: {text_of(get_args(kind)[0] if get_origin(kind) is NotRequired else kind)};\n"
        )
    return f"export interface {name} {{\n{''.join(lines)}}}\n"


def main() -> int:
    made = HEAD + "".join("\n" + declaration(name, of) for name, of in TYPES.items())
    if "--check" in sys.argv:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != made:
            print(
                "ui/src/lib/answers.ts is not what rowlock.answers gives: run `make docs` and commit it",
                file=sys.stderr,
            )
            return 1
        return 0
    TARGET.write_text(made, encoding="utf-8")
    print(f"wrote {TARGET.relative_to(REPO)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
