"""What a call of the REST API knows of the server."""

import os
import pwd

import pytest

from rowlock.rest.call import RestSettings


def test_a_uid_without_an_account_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker run --user 1001`: the server ended with a KeyError."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert RestSettings().user == str(os.getuid())
