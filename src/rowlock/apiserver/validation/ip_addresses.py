"""Parses IP addresses as leniently as the real API server does. Pure."""

from __future__ import annotations

import ipaddress
import re

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LEADING_ZEROS = re.compile(r"(?<![\w:])0+(?=\d)")
"""Leading zeros are ignored, as in Kubernetes: `010` is ten, not eight."""


def parse_ip(text: str) -> Address | None:
    """The parsed address (IPv4-mapped IPv6 as IPv4); None if it is invalid."""
    try:
        ip = ipaddress.ip_address(_LEADING_ZEROS.sub("", text) if "." in text else text)
    except ValueError:
        return None
    return (isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped) or ip


def ip_problems(text: str) -> list[str]:
    """What is wrong with an IPv4 or IPv6 address."""
    return [] if parse_ip(text) else ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]


def non_special_ip_problems(text: str) -> list[str]:
    """What is wrong with an address that must be neither unspecified, loopback nor link-local."""
    ip = parse_ip(text)
    if ip is None:
        return ip_problems(text)
    if ip.is_unspecified:
        return [f"may not be unspecified ({ip})"]
    if ip.is_loopback:
        return ["may not be in the loopback range (127.0.0.0/8, ::1/128)"]
    if ip.is_link_local:
        return ["may not be in the link-local range (169.254.0.0/16, fe80::/10)"]
    if any(ip in network for network in _LINK_LOCAL_MULTICAST if network.version == ip.version):
        return ["may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"]
    return []


_LINK_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))
