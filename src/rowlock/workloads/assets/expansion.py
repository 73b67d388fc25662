"""Expands a submit that names a template or assets: their values are written into its body.

The request's own values override those of its assets, and these override the template's. Objects are merged field by field; lists of
named items (variables, labels) item by item; other lists are replaced. Data sources of both template and request add their
volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from rowlock.workloads.assets.asset_kinds import ASSET_KINDS, AssetKind, CredentialField, by_kind
from rowlock.workloads.assets.asset_objects import Asset
from rowlock.workloads.assets.credentials import secret_name
from rowlock.workloads.body_fields import BodyErrors, Fields

FindAsset = Callable[[str, str], Asset | None]
"""(kind, id or name) → the asset, if the workload may use it."""


class ExpandedSubmit(NamedTuple):
    """The body without names of assets, and the assets used: `{"environment": {"id", "name"}, "datasources": [...], ...}`."""

    body: Any
    references: dict[str, Any]
    check: Callable[[], None] = lambda: None
    """Checks the body against the policies, after it has been parsed. Raises BadRequest."""


def expand_submit(body: Any, workload_type: str, find: FindAsset) -> ExpandedSubmit:
    """Expand `templateId` and `assets`, which is `{environment, compute, datasources: [{id, kind}]}`. Raises BadRequest with
    one cause per asset that is not found."""
    if not isinstance(body, Mapping) or not (body.get("templateId") or body.get("assets")):
        return ExpandedSubmit(body, {})
    errors = BodyErrors()
    top = Fields("", body, errors)
    references: dict[str, Any] = {}
    template = _find_named(top, "templateId", f"template-{workload_type.lower()}", find)
    spec, changes = _template_values(top, template, references)
    assets = top.object("assets")
    assets.allow_only("environment", "compute", "datasources")
    for field in ("environment", "compute"):
        if asset := _find_named(assets, field, field, find):
            references[field] = _reference(asset)
            spec = merge(spec, _kind_of(asset).to_submit_spec(asset.spec))
    of_template = Fields("template", (template and template.content) or {}, errors).object("assets")
    named = [*of_template.items("datasources"), *assets.items("datasources")]
    sources = _data_sources(named, find, references)
    own_spec = top.object("spec").values
    errors.raise_if_any()
    whole = _with_volumes(merge(spec, own_spec), sources)
    rest = {name: value for name, value in body.items() if name not in ("templateId", "assets")}
    return ExpandedSubmit({**changes, **rest, "spec": whole}, references)


def _template_values(
    top: Fields, template: Asset | None, references: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The template's values for `spec`, and for the fields beside it."""
    if template is None:
        return {}, {}
    references["template"] = _reference(template)
    content = template.content or {}
    master = (content.get("master") or {}).get("spec")
    same = content.get("masterSpecSameAsWorker")
    if top.get("masterSpec") is not None or top.get("masterSpecSameAsWorker") is not None:
        return template.spec, {}
    changes = ({"masterSpec": master} if master else {}) | (
        {"masterSpecSameAsWorker": same} if same is not None else {}
    )
    return template.spec, changes


def _data_sources(named: list[Fields], find: FindAsset, references: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Field of `spec.storage` → its items; a source named twice is mounted once."""
    sources: dict[str, list[dict[str, Any]]] = {}
    seen: set[str] = set()
    for item in named:
        item.allow_only("id", "kind")
        asset = _find_source(item, find)
        if asset is not None and asset.id not in seen:
            seen.add(asset.id)
            row = _kind_of(asset)
            references.setdefault("datasources", []).append({**_reference(asset), "type": asset.kind})
            spec = row.with_secret(asset.spec, partial(_find_secret, item, find))
            sources.setdefault(row.storage, []).extend(row.to_submit_spec(spec)["storage"][row.storage])
    return sources


def _with_volumes(spec: dict[str, Any], sources: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The spec with these volumes before its own, as a copy, since the storage may be the template's. Malformed values are left for the
    parser to report."""
    storage = spec.get("storage") or {}
    if not sources or not isinstance(storage, Mapping):
        return spec
    own = {place: storage.get(place) or [] for place in sources}
    added = {place: [*items, *own[place]] for place, items in sources.items() if isinstance(own[place], list)}
    return {**spec, "storage": {**storage, **added}}


def _find_secret(item: Fields, find: FindAsset, field: CredentialField, word: str) -> str:
    """The Secret's name for the credential that a data source names; adds an error if the project may not use it."""
    credential = next((one for kind in field.kinds if (one := find(kind, word))), None)
    if credential is None:
        item.add_error(
            "id", "unknown", f"this data source names the credential {word!r}, which this project may not use."
        )
        return ""
    return secret_name(credential)


def _find_source(item: Fields, find: FindAsset) -> Asset | None:
    """The data source with this id and kind; without a kind (as the command line sends it), of any kind."""
    kind, known = item.text("kind"), [row.kind for row in ASSET_KINDS if row.storage]
    if kind:
        if kind in known:
            return _find_named(item, "id", kind, find)
        item.add_error("kind", "options", f"must be one of {', '.join(known)}.")
        return None
    word = item.text("id")
    asset = next((one for row in known if word and (one := find(row, word))), None)
    if asset is None:
        item.add_error("id", "unknown", f"there is no data source {word!r} that this project may use.")
    return asset


def _find_named(body: Fields, field: str, kind: str, find: FindAsset) -> Asset | None:
    word = body.text(field)
    asset = find(kind, word) if word else None
    if word and asset is None:
        what = "template" if kind.startswith("template-") else f"asset of the kind {kind}"
        body.add_error(field, "unknown", f"there is no {what} {word!r} that this project may use.")
    return asset


def _kind_of(asset: Asset) -> AssetKind:
    row = by_kind(asset.kind)
    assert row is not None, asset.kind
    return row


def _reference(asset: Asset) -> dict[str, str]:
    return {"id": asset.id, "name": asset.name}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` overridden by `over`; null values in `over` are ignored."""
    result = dict(base)
    for name, value in over.items():
        if value is not None:
            result[name] = _merge_values(result.get(name), value)
    return result


def _merge_values(base: Any, over: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return merge(base, over)
    if _are_named(base) and _are_named(over):
        names = {item["name"] for item in over}
        return [*(item for item in base if item["name"] not in names), *over]
    return over


def _are_named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) and "name" in item for item in value)
