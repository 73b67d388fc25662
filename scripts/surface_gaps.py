"""What rowlock makes of Run:ai's surface, line by line: honoured, refused, or missing. `python scripts/surface_gaps.py [SURFACE.md]`

The lines come from the lists of this repository. Where the specification lies beside it (or is named), what the lists lack of its
flags and routes is told, too. Exits with 1 where something is missing.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO), str(REPO / "scripts")]

from make_runai_table import surface_lines  # noqa: E402  (beside this file)
from tests.rest.test_runai_routes import routes, state_of  # noqa: E402

BESIDE = REPO.parent / "shared" / "spec" / "surface.md"
STATES = {"done": "honoured", "refused": "refused", "unknown": "missing"}


def lines() -> Iterator[tuple[str, str, str]]:
    """Where it belongs, what it is, and its state with the reason."""
    for line in surface_lines():
        state = STATES[line.state] + (f": {line.reason}" if line.reason else "")
        yield f"V{line.generation}", f"{line.command} {line.flag}".strip(), state
    for priority, method, path in routes():
        yield f"REST {priority}", f"{method} {path}", state_of(method, path)


def unlisted(text: str) -> Iterator[tuple[str, str, str]]:
    """Flags and routes of the specification that no list has."""
    flags = {line.flag for line in surface_lines()}
    for generation, number in (("V1", "2.3"), ("V2", "3.2")):
        section = text.partition(f"### {number} ")[2].partition("\n### ")[0]
        for row in re.findall(r"^\| (`-[^|]*)", section, re.MULTILINE):
            for flag in re.findall(r"`(?:-\w`, `)?(--[a-z0-9-]+)", row):
                is_listed = any(one.startswith(flag) for one in flags) if flag.endswith("-") else flag in flags
                if not is_listed:
                    yield generation, flag, "missing: no list has it"
    known = {re.sub(r"\{\w+\}", "{}", path) for _, _, path in routes()}
    section = text.partition("### 4.3 ")[2].partition("\n### ")[0]
    for row in re.findall(r"^\| [MS] \| ([^|]*)", section, re.MULTILINE):
        for path in re.findall(r"/api/v[12]/[\w/{}-]+", row):
            if re.sub(r"\{\w+\}", "{}", path) not in known and not any(one.startswith(path) for one in known):
                yield "REST", path, "missing: no list has it"


def main() -> int:
    """Print every line, then the counts."""
    specification = Path(sys.argv[1]) if len(sys.argv) > 1 else BESIDE
    found = list(lines())
    if specification.is_file():
        found += unlisted(specification.read_text(encoding="utf-8"))
    else:
        print(f"{specification} is not there: only the lists of this repository are looked at", file=sys.stderr)
    counts: Counter[tuple[str, str]] = Counter()
    for where, what, state in found:
        print(f"{where}\t{what}\t{state}")
        counts[where, state.partition(":")[0]] += 1
    for (where, state), count in sorted(counts.items()):
        print(f"{where}: {count} {state}")
    return int(any(state == "missing" for _, state in counts))


if __name__ == "__main__":
    sys.exit(main())
