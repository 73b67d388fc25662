"""The variables by which a kubelet tells a pod about the Services in its namespace (pkg/kubelet/envvars). Pure."""

from collections.abc import Callable, Iterable

from rowlock.objects import Key, Object, dig, key

Place = Callable[[Key, str, int], tuple[str, int]]
"""A Service, its address and a port of it → where a pod of this node finds that port."""


def service_variables(services: Iterable[Object], place: Place) -> dict[str, str]:
    """NAME_SERVICE_HOST, NAME_SERVICE_PORT, one for each named port, and those of Docker's links, which begin with NAME_PORT.
    `services` have addresses of their own: others have no variables on a cluster either."""
    found: dict[str, str] = {}
    for service in services:
        prefix = _variable_name(key(service).name)
        for number, port in enumerate(dig(service, "spec.ports") or ()):
            address, where = place(key(service), dig(service, "spec.clusterIP"), port["port"])
            protocol = str(port.get("protocol") or "TCP")
            url, link = f"{protocol.lower()}://{address}:{where}", f"{prefix}_PORT_{port['port']}_{protocol}"
            if number == 0:
                found |= {
                    f"{prefix}_SERVICE_HOST": address,
                    f"{prefix}_SERVICE_PORT": str(where),
                    f"{prefix}_PORT": url,
                }
            if port.get("name"):
                found[f"{prefix}_SERVICE_PORT_{_variable_name(port['name'])}"] = str(where)
            found |= {
                link: url,
                f"{link}_PROTO": protocol.lower(),
                f"{link}_PORT": str(where),
                f"{link}_ADDR": address,
            }
    return found


def _variable_name(name: str) -> str:
    return name.upper().replace("-", "_")
