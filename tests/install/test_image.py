"""The image of the server in a cluster: what `deploy/Dockerfile` installs is all that the server imports there."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import distribution, packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.conformance.subjects import REPO

PACKAGE = REPO / "src" / "rowlock"


def installed_extras() -> set[str]:
    """The extras of rowlock that the Dockerfile's one pip command asks for."""
    text = (REPO / "deploy" / "Dockerfile").read_text()
    (found,) = re.findall(r"""pip install [^\n]*[ "'](\.(?:\[[^]]*\])?)["']?$""", text, re.MULTILINE)
    return set(filter(None, re.split(r"[\[\],.]", found)))


def closure(extras: set[str]) -> set[str]:
    """The distributions that come with rowlock and these extras of it."""
    found: set[str] = set()
    waiting = [("rowlock", extras)]
    while waiting:
        name, wanted = waiting.pop()
        requirements = [Requirement(text) for text in distribution(name).requires or ()]
        for each in requirements:
            is_wanted = each.marker is None or any(each.marker.evaluate({"extra": one}) for one in wanted | {""})
            if is_wanted and canonicalize_name(each.name) not in found:
                found.add(canonicalize_name(each.name))
                waiting.append((each.name, each.extras))
    return found


def imported() -> dict[str, str]:
    """The modules of others that the rooms of the Kubernetes engine import, and one place of each."""
    found: dict[str, str] = {}
    for path in (path for pattern in ("kube/**/*.py", "kube_*/**/*.py", "kube_*.py") for path in PACKAGE.glob(pattern)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {name.partition(".")[0]: str(path.relative_to(PACKAGE)) for name in names}
    return {name: where for name, where in found.items() if name not in sys.stdlib_module_names and name != "rowlock"}


def test_the_image_has_what_the_server_imports() -> None:
    there, owners = closure(installed_extras()), packages_distributions()
    modules = imported()
    assert {"kr8s", "aiohttp"} <= set(modules), "the engine's own libraries are looked at"
    absent = {
        f"{name} of {where}"
        for name, where in modules.items()
        if not {canonicalize_name(d) for d in owners[name]} & there
    }
    assert not absent, "deploy/Dockerfile installs an image that lacks these"


def test_without_the_extra_they_would_be_missing() -> None:
    assert not {"kr8s", "aiohttp"} & closure(set())
