"""`--ui-address`: what it may be, where it listens, and the certificate that browsers are shown there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowlock import serve
from rowlock.errors import BadRequest
from rowlock.http_server import sockets
from rowlock.http_server.certificates import ensure_certificates
from rowlock.server_settings import ServerSettings


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", ("", 0)),
        ("192.0.2.7", ("192.0.2.7", 0)),
        ("192.0.2.7:8443", ("192.0.2.7", 8443)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("::", ("::", 0)),
        ("2001:db8::1", ("2001:db8::1", 0)),
        ("[2001:db8::1]", ("2001:db8::1", 0)),
        ("[2001:db8::1]:8443", ("2001:db8::1", 8443)),
    ],
)
def test_an_address_and_a_port(text: str, meaning: tuple[str, int]) -> None:
    assert sockets.parse_ui_address(text) == meaning


@pytest.mark.parametrize(
    "text", ["gpu-box", "127.0.0.2:", "127.0.0.2:x", "127.0.0.2:70000", "127.0.0.2:²", ":8443", "1:2:3:8443"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="--ui-address takes"):
        sockets.parse_ui_address(text)


def test_it_has_a_port_of_its_own_and_keeps_it(tmp_path: Path) -> None:
    """Also at another address: whose face a request is for is told by its port."""
    api = sockets.open_listeners(0, tmp_path)[0]
    with api:
        port = api.getsockname()[1]
        with pytest.raises(BadRequest, match="the server's own already"):
            sockets.open_browser_listeners(tmp_path, port, f"127.0.0.2:{port}")
        first = sockets.open_browser_listeners(tmp_path, port, "127.0.0.2")
        assert len({port, *first.ports}) == 3
        ui_port = first.ports[1]
        first.elsewhere[0].listen()
        with pytest.raises(BadRequest, match="choose another"):
            sockets.open_browser_listeners(tmp_path, port, f"127.0.0.2:{ui_port}")
        (tmp_path / "server.json").write_text(f'{{"uiOthers": ["https://gpu-box:{ui_port}/"]}}')
        for sock in first.sockets:
            sock.close()
        again = sockets.open_browser_listeners(tmp_path, port, "127.0.0.2")
        assert again.ports[1] == ui_port
        for sock in again.sockets:
            sock.close()
        with pytest.raises(BadRequest, match="not an address of this machine"):
            sockets.open_browser_listeners(tmp_path, port, "192.0.2.7")


def options(directory: Path, *flags: str) -> ServerSettings:
    return serve.parse_arguments(["--data-dir", str(directory), *flags])


def test_a_login_page_needs_somebody_who_can_log_in(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="nobody who could log in"):
        serve.external_names(options(tmp_path, "--ui-address", "127.0.0.2"))
    provider = ("--oidc-issuer-url", "https://login.example", "--oidc-client-id", "x")
    assert "gpu-box" in serve.external_names(
        options(tmp_path, "--ui-address", "127.0.0.2", "--tls-san", "gpu-box", *provider)
    )


def test_a_certificate_is_checked_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "accounts.json").touch()
    one, other = ensure_certificates(tmp_path / "a"), ensure_certificates(tmp_path / "b")
    page = ("--ui-address", "127.0.0.2")
    for flags, says in (
        ((*page, "--ui-cert", str(one.certificate)), "go together"),
        (("--tls-san", "x", "--ui-cert", str(one.certificate), "--ui-key", str(one.key)), "needs --ui-address"),
        ((*page, "--ui-cert", str(one.certificate), "--ui-key", str(other.key)), "cannot be used"),
        ((*page, "--ui-cert", "/nowhere", "--ui-key", str(one.key)), "cannot be used"),
    ):
        with pytest.raises(BadRequest, match=says):
            serve.external_names(options(tmp_path, *flags))
    serve.external_names(options(tmp_path, *page, "--ui-cert", str(one.certificate), "--ui-key", str(one.key)))
