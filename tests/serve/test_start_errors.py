"""What a server that cannot start says: the cause, and what helps against that one."""

from __future__ import annotations

import errno
import ssl
from pathlib import Path

import pytest

from rowlock.assembly import _describe_os_error
from rowlock.server_settings import ServerSettings

OPTIONS = ServerSettings(port=8443, data_dir=Path("/data"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EADDRINUSE, "Address already in use"), "port 8443 is taken: choose another with --port"),
        (
            ssl.SSLError(116, "[X509: KEY_VALUES_MISMATCH] key values mismatch"),
            "remove /data/server.crt, /data/server.key",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "/data/wake"), "the disk of /data/wake has no room"),
    ],
)
def test_the_advice_fits_the_error(error: OSError, said: str) -> None:
    text = _describe_os_error(error, OPTIONS)
    assert said in text
    assert ("--port" in text) == (error.errno == errno.EADDRINUSE)
