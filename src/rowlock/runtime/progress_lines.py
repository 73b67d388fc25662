"""How far a program is, in a line that people and programs read."""

from __future__ import annotations

import os
import sys


def progress(step: int, total: int | None = None, **metrics: float) -> None:
    """Print `step=10/100 loss=0.3125` on stdout, from rank 0 alone. Metrics are numbers; their order is kept."""
    if int(os.environ.get("RANK") or 0):
        return
    figures = " ".join(f"{name}={float(value):.6g}" for name, value in metrics.items())
    print(
        f"step={step}{f'/{total}' if total is not None else ''}{f' {figures}' if figures else ''}",
        file=sys.stdout,
        flush=True,
    )
