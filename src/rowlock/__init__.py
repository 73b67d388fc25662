"""rowlock runs distributed training: submit, schedule, watch and stop jobs whose ranks run on many processors.

From Python: `Client`, `AsyncClient` and `submit` (`sdk/`).

Read `docs/design/walk.md` for the house and the walk of one submit through it.
"""

__version__ = "0.1.0"

KUBERNETES = "1.34.4"
"""The Kubernetes release whose API rowlock serves. Run `make types` after a change: a test checks that the table of types matches."""

_CLIENT = {
    "Client": "client",
    "JobHandle": "client",
    "submit": "submit_function",
    "AsyncClient": "async_client",
    "AsyncJobHandle": "async_client",
    "SweepHandle": "sweeps",
    "AsyncSweepHandle": "async_sweeps",
}
_ERRORS = ("ClientError", "JobFailed", "RequestRefused", "ServerUnreachable", "ServerWarning")


def __getattr__(name: str) -> object:
    """Import the Python client on first use: the command lines and ranks do not need it."""
    module = "client_errors" if name in _ERRORS else _CLIENT.get(name)
    if module is None:
        raise AttributeError(f"module 'rowlock' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"rowlock.sdk.{module}"), name)
