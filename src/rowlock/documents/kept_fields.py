"""Fields of Secrets and ServiceAccounts that the API server stores in another form than they are sent. Pure."""

from __future__ import annotations

import base64

from rowlock.objects import Object


def keep_secret_names(account: Object) -> Object:
    """The ServiceAccount with only the names in its `secrets`."""
    secrets = account.get("secrets")
    if not secrets:
        return account
    return {**account, "secrets": [{"name": s["name"]} if s.get("name") else {} for s in secrets]}


def merge_string_data(secret: Object) -> Object:
    """The Secret with its `stringData` merged into `data`, in base64."""
    if "stringData" not in secret:
        return secret
    texts = secret["stringData"]
    data = {**(secret.get("data") or {}), **{k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}}
    return {**{k: v for k, v in secret.items() if k != "stringData"}, "data": data}
