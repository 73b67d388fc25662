"""Prints the progress of a program as a line that users and rowlock can read."""

from __future__ import annotations

import os
import sys


def progress(step: int, total: int | None = None, **metrics: float) -> None:
    """Print `step=10/100 loss=0.3125` on stdout, on rank 0 only. Metrics are numbers; their order is kept."""
    if int(os.environ.get("RANK") or 0):
        return
    figures = " ".join(f"{name}={float(value):.6g}" for name, value in metrics.items())
    print(
        f"step={step}{f'/{total}' if total is not None else ''}{f' {figures}' if figures else ''}",
        file=sys.stdout,
        flush=True,
    )
