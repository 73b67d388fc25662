"""Records what a cluster answers to walks of kubectl commands; compares a cluster with the record.

    python -m tests.kubectl record NAME… --kubeconfig FILE --kubectl PROGRAM    write tests/data/kubectl-walk/NAME.golden.json
    python -m tests.kubectl check NAME…|FILE… --kubeconfig FILE [--kubectl PROGRAM] [--step STEP]

`record` reads NAME.yaml, and writes nothing for a walk in which a step broke or never came to what it waits for. Record
against a real cluster only. Exit status 1 when a step differs, breaks, or is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.evidence import WALKS
from tests.kubectl.session import opened
from tests.kubectl.steps import Result, Step, Walk, difference


def check(walk: Walk, kubeconfig: Path, kubectl: str, until: str = "") -> Iterator[tuple[Step, list[str], Result]]:
    """Each step with its difference from the record ([]: none), as it is played; with `until`, up to that step."""
    if until and until not in [step.name for step in walk.steps]:
        raise ValueError(f"the walk {walk.name} has no step {until}")
    with opened(walk, kubeconfig, kubectl) as session:
        for step in walk.steps:
            if step.result is None:
                raise ValueError(f"the step {step.name} of the walk {walk.name} has no record: record the walk first")
            found = session.play(step)
            yield step, difference(step.result, found), found
            if step.name == until:
                return


def record(walk: Walk, kubeconfig: Path, kubectl: str) -> tuple[dict[str, object], list[str]]:
    """The walk with the cluster's answers; and the steps that broke, whose answers say nothing."""
    broken, steps = [], []
    with opened(walk, kubeconfig, kubectl) as session:
        version = json.loads(session.ask("version -o json").stdout)
        for step, source in zip(walk.steps, walk.source["steps"], strict=True):
            began = time.monotonic()
            found = session.play(step)
            if _broke(found):
                broken.append(step.name)
            steps.append({**source, "result": found})
            print(f"{'BROKEN ' if _broke(found) else ''}{step.name} {time.monotonic() - began:.1f} s", file=sys.stderr)
    versions = {
        side: version[f"{key}Version"]["gitVersion"] for side, key in (("server", "server"), ("kubectl", "client"))
    }
    return {**walk.source, "recorded": versions, "steps": steps}, broken


def _broke(found: Result) -> bool:
    never = any("NOT REACHED within" in line for line in found.get("stderr", []))
    return never or found.get("exit") == "timeout" or str(found.get("exit")).startswith("the runner broke")


def main() -> int:
    options = _arguments()
    wrong = 0
    for name in options.names:
        wrong += _record(name, options) if options.verb == "record" else _check(name, options)
    return 1 if wrong else 0


def _record(name: str, options: argparse.Namespace) -> int:
    walk = Walk.load(WALKS / f"{name}.yaml")
    steps = [replace(step, result=None) for step in walk.steps]
    made, broken = record(replace(walk, steps=steps), options.kubeconfig, options.kubectl)
    if broken:
        print(f"{name}: nothing is written, since these steps broke: {', '.join(broken)}", file=sys.stderr)
        return 1
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    (WALKS / f"{name}.golden.json").write_text(text + "\n", encoding="utf-8")
    return 0


def _check(name: str, options: argparse.Namespace) -> int:
    path = Path(name) if name.endswith(".json") else WALKS / f"{name}.golden.json"
    counts = {True: 0, False: 0}
    for step, lines, _ in check(Walk.load(path), options.kubeconfig, options.kubectl, options.step):
        counts[not lines] += 1
        print("\n    ".join([f"differs: {step.name}: kubectl {step.run}", *lines]) if lines else step.name, flush=True)
    print(f"{name}: {counts[True]} steps as recorded, {counts[False]} differ")
    return counts[False]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kubectl", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("record", "check"))
    parser.add_argument("names", nargs="+", help="walks of tests/data/kubectl-walk, or recorded files")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--kubectl", default="kubectl", help="of the version that is recorded (kubectl)")
    parser.add_argument("--step", default="", help="check: the last step that is played")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
