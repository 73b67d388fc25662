"""`manifests`: handed to the program that knows what rowlock needs on a real cluster. No server is asked."""

from __future__ import annotations

import os
import sys

from rowlock.cli.grammar import CommandLine


def manifests(line: CommandLine) -> int:
    sys.stdout.flush()
    module = [sys.executable, "-P", "-m", "rowlock.kube.manifests"]
    os.execv(sys.executable, [*module, "--scheduler", line.scheduler])
