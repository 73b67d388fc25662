"""What `import rowlock` offers, for type checkers: `__init__.py` imports it when it is first used."""

from rowlock.sdk.async_client import AsyncClient as AsyncClient
from rowlock.sdk.async_client import AsyncJobHandle as AsyncJobHandle
from rowlock.sdk.async_sweeps import AsyncSweepHandle as AsyncSweepHandle
from rowlock.sdk.client import Client as Client
from rowlock.sdk.client import JobHandle as JobHandle
from rowlock.sdk.client_errors import ClientError as ClientError
from rowlock.sdk.client_errors import JobFailed as JobFailed
from rowlock.sdk.client_errors import RequestRefused as RequestRefused
from rowlock.sdk.client_errors import ServerUnreachable as ServerUnreachable
from rowlock.sdk.client_errors import ServerWarning as ServerWarning
from rowlock.sdk.submit_function import submit as submit
from rowlock.sdk.sweeps import SweepHandle as SweepHandle

__version__: str
KUBERNETES: str
