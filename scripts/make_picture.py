"""Draw docs/demo.svg, the README's picture: what `make demo` really printed, with long stretches left out as `…`.

Needs `rich`, which is among the development dependencies. Runs the demo once.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

REPO = Path(__file__).resolve().parents[1]
WIDTH = 118
COLOURS = re.compile(r"\033\[[0-9;]*m")
KEPT = re.compile(
    r"^(# |\$ |The cluster|Step|Successfully|The job|You can|Showing|NAME  |distributed-|Succeeded|"
    r"\[rank \d\] .*(Epoch (1|2|8|9|10|29|30)(/| \|)|Resuming)|"
    r"pytorchjob.kubeflow.org/|pod/distributed-[-a-z]+\d +\d/)"
)


def shortened(output: str) -> str:
    """The lines that tell the story; runs of others become one `…`."""
    lines: list[str] = []
    for line in output.splitlines():
        plain = COLOURS.sub("", line)
        if KEPT.match(plain):
            whole = len(plain) <= WIDTH or plain.startswith(("$ ", "Succeeded"))  # these are wrapped
            lines.append(line if whole else plain[: WIDTH - 2] + " …")
        elif not plain and lines and lines[-1] not in ("", "…"):
            lines.append("")
        elif plain and (not lines or lines[-1] != "…"):
            lines.append("…")
    return "\n".join(lines)


def main() -> int:
    env = {**os.environ, "FORCE_COLOR": "1"}
    done = subprocess.run([sys.executable, "examples/demo.py"], cwd=REPO, env=env, capture_output=True, text=True)
    print(done.stdout + done.stderr)
    if done.returncode:
        return done.returncode
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("$ make demo\n" + shortened(done.stdout)))
    console.save_svg(str(REPO / "docs" / "demo.svg"), title="make demo")
    print("wrote docs/demo.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
