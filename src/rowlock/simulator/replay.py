"""`rowlock scheduler replay FILE`: the real planner on a snapshot, and every decision with its sentence.

The same snapshot gives the same output for ever: a snapshot is a bug report, and its replay the proof of a repair.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from rowlock.scheduling.explain import writes
from rowlock.scheduling.explain.explanations import Explainer
from rowlock.scheduling.model.session import Session, open_session
from rowlock.scheduling.model.snapshot import Snapshot, loads
from rowlock.scheduling.planner import Planner


def decisions(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Binds, evictions and holds of one cycle, in this order, as JSON."""
    planner = Planner(open_session(snapshot))
    plan = planner.run_cycle(keep_plan=True)
    session = planner.session
    holds = list(_hold_records(planner, session))
    planner.reset()  # messages of evictions state what queues held before the cycle
    for b in plan.binds:
        cards = f" (card{'s' if len(b.devices) > 1 else ''} {', '.join(map(str, b.devices))})" if b.devices else ""
        text = f"{b.namespace}/{b.pod} starts on {b.node}{cards}."
        yield {"decision": "bind", "pod": f"{b.namespace}/{b.pod}", "gang": b.gang, "node": b.node,
               "cards": list(b.devices), "message": text}  # fmt: skip
    for e in plan.evictions:
        yield {"decision": "evict", "pod": f"{e.namespace}/{e.pod}", "gang": e.gang, "act": e.action, "for": e.preemptor,
               "movesTo": e.moves_to, "message": writes.eviction_message(session, e)}  # fmt: skip
    yield from holds


def _hold_records(planner: Planner, session: Session) -> Iterator[dict[str, Any]]:
    explainer = Explainer(session)
    for hold in planner.holds():
        explanation = explainer.explain(hold)
        if explanation is not None:
            yield {"decision": "hold", "gang": hold.gang, "reason": str(explanation.reason), "message": explanation.message,
                   "record": explanation.record}  # fmt: skip


def format_decision(decision: dict[str, Any]) -> str:
    """One line for a decision: bind, evict, or hold with its reason and what helps."""
    message = " ".join(decision["message"].split("\n"))
    if decision["decision"] == "hold":
        hint = decision["record"].get("hint")
        word = "" if message.startswith(decision["reason"]) else f"{decision['reason']}: "
        return f"hold   {decision['gang']}: {word}{message}" + (f" What helps: {hint}." if hint else "")
    return f"{decision['decision']:<6} {message}"


def summarize(records: list[dict[str, Any]]) -> str:
    """How many binds, evictions and holds there are, in one sentence."""
    counts = [sum(f["decision"] == word for f in records) for word in ("bind", "evict", "hold")]
    words = [f"{n} {w}{'' if n == 1 else 's'}" for n, w in zip(counts, ("bind", "eviction", "hold"), strict=True)]
    return ", ".join(words) + "."


def read_snapshot(path: str, program: str) -> Snapshot:
    """Read a snapshot from a file, or from stdin for `-`. Exits with code 1 and a message on stderr if it cannot be read."""
    try:
        if path == "-":
            raw = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                raw = file.read()
        return loads(raw)
    except OSError as error:
        error_message = f"{path} cannot be read: {error.strerror}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        error_message = f"{path} is not a snapshot ({error}): `rowlock scheduler snapshot -o {path}` writes one"
    print(f"{program}: {error_message}", file=sys.stderr)
    raise SystemExit(1)


def main(argv: list[str] | None = None) -> int:
    """Print the planner's decisions on a snapshot. Exit code 0, 1 for a snapshot that cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="replay", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("file", help="what `rowlock scheduler snapshot` printed; - for stdin")
    options = parser.parse_args(argv)
    records = list(decisions(read_snapshot(options.file, options.program)))
    if options.json:
        print(json.dumps(records, indent=2, ensure_ascii=False))
        return 0
    for decision in records:
        print(format_decision(decision))
    print(summarize(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
