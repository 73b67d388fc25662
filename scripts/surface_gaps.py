"""What rowlock makes of Run:ai's surface, line by line: honoured, refused, or missing. `python scripts/surface_gaps.py [SURFACE.md]`

The lines come from the lists of this repository. Where the specification lies beside it (or is named), what the lists lack of its
flags and routes is told, too, and which of its states and columns there are. Exits with 1 where something is missing.
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

from rowlock.workloads.phase import V1_STATUSES  # noqa: E402

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


NO_STATES = {
    "Updating": "a change of a job is there when the write is answered",
    "Terminating": "said as Deleting",
    "Unknown": "a state is read off the objects, and no agent between can be silent",
}
"""Phases that are never said, and why."""


def states(text: str) -> Iterator[tuple[str, str, str]]:
    """The phases of the specification, the words of the first generation for them, and the reasons for a wait."""
    section = text.partition("### 1.2 ")[2].partition("\n### ")[0]
    for phase in re.search(r"Enum `Phase`[^`]*`([^`]*)`", section)[1].split(", "):  # type: ignore[index]
        reason = NO_STATES.get(phase, "")
        yield "states", phase, "honoured" if phase in V1_STATUSES else f"refused: {reason}" if reason else "missing"
    mapping = text.partition("Mapping for one engine:")[2].partition("\n### ")[0]
    for engine, second, first in re.findall(r"^\| ([a-z][^|]*) \| ([A-Z][^|]*) \| ([^|]*) \|", mapping, re.MULTILINE):
        phases = [word for word in re.findall(r"[A-Z]\w+", second) if word in V1_STATUSES]
        words = set(re.findall(r"[A-Z]\w+", first))
        fits = any(V1_STATUSES[phase] in words for phase in phases)
        yield (
            "states",
            f"{engine.strip()} → V1 {first.strip()}",
            "honoured" if fits else "missing: another word is said",
        )
    section = text.partition("### 1.3 ")[2].partition("\n### ")[0]
    source = _source_of("src/rowlock/scheduling", "*.py")
    for word in re.findall(r"`(\w+)`", section.partition("`phaseReason` enum")[2].partition(".")[0]):
        yield "states", f"reason {word}", "honoured" if f'"{word}"' in source else "missing: no scheduler says it"


def columns(text: str) -> Iterator[tuple[str, str, str]]:
    """The columns of the tables: of both command lines, and of the web UI's pages."""
    v1, v2 = _source_of("src/rowlock/cli/runai_v1", "*.py"), _source_of("src/rowlock/cli/runai_v2", "*.py")
    header = re.search(r"^NAME +STATUS +AGE .*", text, re.MULTILINE)
    for name in re.split(r" {2,}", header[0] if header else ""):
        yield "columns", f"runai list jobs: {name}", _state_of_column(f'"{name}"' in v1)
    header = re.search(r"^Workload {2,}Type .*GPU Allocation", text, re.MULTILINE)
    for name in re.split(r" {2,}", header[0] if header else ""):
        yield "columns", f"runai distributed list: {name}", _state_of_column(f'"{name}"' in v2)
    listed = re.search(r"`runai project list` \| columns `([^`]*)`", text)
    for name in (listed[1] if listed else "").split(", "):
        yield "columns", f"runai project list: {name}", _state_of_column(f'"{name}"' in v2)
    section = text.partition("### 5.1 ")[2].partition("\n### ")[0]
    for page, names in re.findall(r"^\| \**([A-Z][\w ]*?)\** \| ([^|]*) \|", section, re.MULTILINE):
        source = "\n".join((REPO / "ui/src" / name).read_text(encoding="utf-8") for name in UI_PAGES.get(page, ()))
        for name in _column_names(names) if page in UI_PAGES else ():
            yield "columns", f"UI {page}: {name}", _state_of_column(_says(source, name))


UI_PAGES = {
    "Workloads": ("lib/columns.ts",),
    "Projects": ("lib/unitColumns.ts",),
    "Nodes": ("lib/nodeColumns.ts", "parts/GpusDialog.svelte"),
}
"""Pages whose columns are compared by name, with the files in which those of their tables stand; what others lack is a page, not a
column."""
_SEVERAL = {
    "Avg. GPU allocation/utilization/memory utilization": (
        "Avg. GPU allocation", "Avg. GPU utilization", "Avg. GPU memory utilization",
    ),
    "GPU/CPU/CPU-memory allocation ratio": ("GPU allocation ratio", "CPU allocation ratio", "CPU memory allocation ratio"),
    "CPU compute request/allocation": ("CPU compute request", "CPU compute allocation"),
    "CPU memory request/allocation": ("CPU memory request", "CPU memory allocation"),
    "quotas": ("CPU quota", "CPU memory quota"),
    "idle/time limits": ("Idle limits", "Time limits"),
    "Allocated compute/memory": ("Allocated compute", "Allocated memory"),
    "Compute/Memory utilization": ("Compute utilization", "Memory utilization"),
}  # fmt: skip
"""Names under which the specification means several columns, and these: each is a column of its own in Run:ai's tables, and each has
to be there. `Running/requested pods` and `Ready/total GPU devices` are one."""


def _column_names(row: str) -> Iterator[str]:
    """The columns of a page: the row of the specification is a list, with those of a dialog behind a semicolon."""
    for part in row.split("; modal per GPU: "):
        for name in re.split(r", (?![^(]*\))", part):
            yield from _SEVERAL.get(name.strip(), (name.strip(),))


def _says(source: str, title: str) -> bool:
    """Whether a title stands in a source as a text of its own; what it has in brackets, a unit or an older name, may be missing."""
    short = re.sub(r" \((?!s\)).*", "", title)
    return any(re.search(rf"""["'`>]{re.escape(one)}["'`<]""", source, re.IGNORECASE) for one in (title, short))


def _state_of_column(there: bool) -> str:
    return "honoured" if there else "missing: no table has it under this name"


def _source_of(folder: str, pattern: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((REPO / folder).rglob(pattern)))


def main() -> int:
    """Print every line, then the counts."""
    specification = Path(sys.argv[1]) if len(sys.argv) > 1 else BESIDE
    found = list(lines())
    if specification.is_file():
        text = specification.read_text(encoding="utf-8")
        found += [*unlisted(text), *states(text), *columns(text)]
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
