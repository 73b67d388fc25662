"""`rowlock.submit`: runs a function as the ranks of a job, in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rowlock.sdk.client import Client, JobHandle


def submit(
    fn: Callable[..., Any],
    *,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    client: Client | None = None,
    **fields: Any,
) -> JobHandle:
    """Run a function as the ranks of a job: `rowlock.submit(train, nnodes=2).results()`. The server is the `client`'s, by
    default that of the data directory; other arguments as for `Client.submit_function`."""
    return (client or Client()).submit_function(fn, args=args, kwargs=kwargs, **fields)
