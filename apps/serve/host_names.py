"""Names of machines: what is in a Host header or an origin, and what means this machine only.

Looks nothing up. Knows no request.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def host_name(authority: str) -> str:
    """The name or address in `NAME[:PORT]`, in lower case and without brackets; empty if there is none."""
    try:
        return (urlsplit(f"//{authority}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_local_name(name: str) -> bool:
    """Browsers look these names up nowhere: they always mean the machine itself."""
    return name == "localhost" or name.endswith(".localhost")


def address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """`name` as an address, None if it is a name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Only this machine can reach `host`, a name or address to listen on."""
    return host in ("localhost", "::1") or host.startswith("127.")
