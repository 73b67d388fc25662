"""All frameworks. A new one is a file that creates a `Framework`, and an entry here."""

from __future__ import annotations

from rowlock.kinds import Kind
from rowlock.training.framework import Framework
from rowlock.training.frameworks import jax, mpi, paddle, pytorch, tensorflow, xgboost

FRAMEWORKS: dict[Kind, Framework] = {
    module.FRAMEWORK.kind: module.FRAMEWORK for module in (pytorch, tensorflow, mpi, xgboost, paddle, jax)
}
