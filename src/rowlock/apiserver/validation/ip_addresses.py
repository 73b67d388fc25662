"""IP addresses as the real API server reads them: leniently, where a later one will not. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from rowlock.apiserver.validation.field_errors import invalid_value
from rowlock.errors import Cause

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LEADING_ZEROS = re.compile(r"(?<![\w:])0+(?=\d)")
"""`010` is ten here, as it always was to Kubernetes, and not eight."""


def parse_ip(text: str) -> Address | None:
    """The address that a text means; None for one that is none."""
    try:
        ip = ipaddress.ip_address(_LEADING_ZEROS.sub("", text) if "." in text else text)
    except ValueError:
        return None
    return (isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped) or ip


def address_causes(address: str, field: str) -> Iterator[Cause]:
    """An IP address, of either family."""
    if parse_ip(address) is None:
        yield invalid_value(field, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")


def non_special_ip_causes(address: str, field: str) -> Iterator[Cause]:
    """An address that means the same to every machine."""
    ip = parse_ip(address)
    if ip is None:
        yield from address_causes(address, field)
    elif ip.is_unspecified:
        yield invalid_value(field, address, f"may not be unspecified ({ip})")
    elif ip.is_loopback:
        yield invalid_value(field, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    elif ip.is_link_local:
        yield invalid_value(field, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    elif any(ip in network for network in _LINK_LOCAL_MULTICAST if network.version == ip.version):
        yield invalid_value(field, address, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


_LINK_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))
