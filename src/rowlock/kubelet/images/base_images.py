"""What a base image's name promises and this machine lacks. No base is downloaded, so the build reports what is missing."""

import importlib.util
import re
import sys

from rowlock.kubelet.images.images import normalise

_FRAMEWORKS = (
    (re.compile(r"(?:^|/)(?:pytorch|torch)[\w.-]*"), "torch", "PyTorch"),
    (re.compile(r"(?:^|/)tensorflow[\w.-]*"), "tensorflow", "TensorFlow"),
    (re.compile(r"(?:^|/)jax[\w.-]*"), "jax", "JAX"),
    (re.compile(r"(?:^|/)xgboost[\w.-]*"), "xgboost", "XGBoost"),
)
_PYTHON = re.compile(r"(?:^|/)python:(\d+\.\d+)")


def missing_promises(base: str) -> list[str]:
    """A sentence for each thing that the base's name promises and that this environment lacks, or has in another version."""
    try:
        name = normalise(base)
    except ValueError:
        return []
    sentences = []
    wanted, here = _PYTHON.search(name), f"{sys.version_info.major}.{sys.version_info.minor}"
    if wanted and wanted[1] != here:
        sentences.append(f"Python {wanted[1]} is not here: programs run with Python {here}")
    for pattern, module, framework in _FRAMEWORKS:
        if pattern.search(name.partition(":")[0]) and importlib.util.find_spec(module) is None:
            sentences.append(
                f"{framework} is not in the environment rowlock runs in: add `RUN pip install {module}`, or install it there"
            )
    return sentences
