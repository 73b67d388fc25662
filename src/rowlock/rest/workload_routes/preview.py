"""The preview of a submit with dryRun=true: the objects that it would create."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import yaml
from starlette.responses import Response

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists
from rowlock.objects import Object
from rowlock.rest.call import RestCall


class _PlainDumper(yaml.SafeDumper):
    """A YAML dumper without anchors: repeated parts are written out, so that people can edit them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


async def try_creation(call: RestCall, made: list[Object]) -> None:
    """Create all objects in a dry run. Raises what admission and validation raise; names that are taken are ignored."""
    for obj in made:
        with suppress(AlreadyExists):
            await call.context.api.create(
                kinds.by_object(obj), obj, options=WriteOptions(manager="rowlock", dry_run=True)
            )


def preview(call: RestCall, made: list[Object], remarks: list[str]) -> Any:
    """The objects and remarks as JSON; or the objects as YAML documents for `kubectl create -f` if the Accept header asks for
    YAML."""
    if "yaml" not in call.request.headers.get("accept", ""):
        return {"objects": made, "remarks": remarks}
    text = yaml.dump_all(made, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return Response(text, media_type="application/yaml")
