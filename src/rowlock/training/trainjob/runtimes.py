"""The ClusterTrainingRuntimes that Kubeflow Trainer ships, under their names and with their images (`runtimes.json`)."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from rowlock.objects import Object

VERSION = "v2.3.0"
"""The release of Kubeflow Trainer of these runtimes, which the controllers also follow."""


def shipped_runtimes() -> list[Object]:
    """All runtimes, as new objects at each call."""
    found: list[dict[str, Any]] = json.loads(resources.files(__package__).joinpath("runtimes.json").read_bytes())
    return found
