"""The pod network without namespaces: names become 127.0.0.1, and ports become free ones. Pure.

All pods share the machine's network, and torch and TensorFlow listen on every address, so two jobs cannot use the same
port. ADDRESS_VARIABLES says which variables carry addresses and in which form; every (pod, port) of the cluster has one free
port, given by `port_of`. No other text is changed: a program that has a name elsewhere must use these variables.

Also the variables by which a kubelet tells a pod about the Services in its namespace (pkg/kubelet/envvars).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rowlock.objects import Key, Object, dig, is_digits, key

PortLookup = Callable[[str, int], int]
"""(pod name as written, port as written) → the port on this machine."""
PodResolver = Callable[[str], str]
"""A name as written → the pod that it means; "" = none."""

LOOPBACK = "127.0.0.1"

ADDRESS_VARIABLES: Mapping[str, tuple[str, str]] = {
    "MASTER_ADDR": ("host", "MASTER_PORT"),
    "PET_MASTER_ADDR": ("host", "PET_MASTER_PORT"),
    "COORDINATOR_ADDRESS": ("host", "COORDINATOR_PORT"),
    "DMLC_TRACKER_URI": ("host", "DMLC_TRACKER_PORT"),
    "JAX_COORDINATOR_ADDRESS": ("host:port", ""),
    "PET_RDZV_ENDPOINT": ("host:port", ""),
    "PADDLE_MASTER": ("host:port", ""),
    "WORKER_ADDRS": ("hosts", "WORKER_PORT"),
    "TF_CONFIG": ("tf", ""),
}
"""Variable → (form, the variable that carries its port)."""
_HOST_LINE = re.compile(r"(\S+)(.*)")
_SLOTS = re.compile(r"\bslots=([0-9]{1,6})")


def rewrite_environment(env: Mapping[str, str], pod: str, resolve: PodResolver, port_of: PortLookup) -> dict[str, str]:
    """`env` for a pod that has this machine's network."""
    new_env = dict(env)
    for variable, (form, port_variable) in ADDRESS_VARIABLES.items():
        if variable in env:
            new_env |= _REWRITERS[form](variable, env, port_variable, (pod, resolve, port_of))
    return new_env


RewriteContext = tuple[str, PodResolver, PortLookup]


def _rewrite_host(variable: str, env: Mapping[str, str], port_variable: str, context: RewriteContext) -> dict[str, str]:
    pod, resolve, port_of = context
    target = resolve(env[variable]) or (pod if env[variable] in ("localhost", LOOPBACK) else "")
    if not target:
        return {}
    variables = {variable: LOOPBACK}
    if is_digits(env.get(port_variable, "")):
        variables[port_variable] = str(port_of(target, int(env[port_variable])))
    return variables


def _rewrite_endpoint_variable(
    variable: str, env: Mapping[str, str], _: str, context: RewriteContext
) -> dict[str, str]:
    return {variable: rewrite_endpoint(env[variable], context)}


def rewrite_endpoint(text: str, context: RewriteContext) -> str:
    """`name:port` → `127.0.0.1:free port`; without a port, only the name is replaced."""
    pod, resolve, port_of = context
    host, _, port = text.partition(":")
    target = resolve(host) or (pod if host in ("localhost", LOOPBACK) else "")
    if not target:
        return text
    return f"{LOOPBACK}:{port_of(target, int(port))}" if is_digits(port) else LOOPBACK


def _rewrite_hosts(
    variable: str, env: Mapping[str, str], port_variable: str, context: RewriteContext
) -> dict[str, str]:
    pod, resolve, port_of = context
    variables = {variable: ",".join(LOOPBACK if resolve(h) else h for h in env[variable].split(","))}
    if is_digits(env.get(port_variable, "")):
        variables[port_variable] = str(port_of(pod, int(env[port_variable])))
    return variables


def _rewrite_tf_config(variable: str, env: Mapping[str, str], _: str, context: RewriteContext) -> dict[str, str]:
    try:
        config = json.loads(env[variable])
    except (ValueError, RecursionError):
        return {}
    if not isinstance(config, dict):
        return {}
    changed = {**config, "cluster": _rewrite_addresses(config.get("cluster"), context)}
    return {variable: json.dumps({k: changed[k] for k in config}, separators=(",", ":"))}


def _rewrite_addresses(value: Any, context: RewriteContext) -> Any:
    if isinstance(value, str):
        return rewrite_endpoint(value, context)
    if isinstance(value, list):
        return [_rewrite_addresses(item, context) for item in value]
    if isinstance(value, dict):
        return {k: _rewrite_addresses(v, context) for k, v in value.items()}
    return value


def rewrite_hostfile(text: str, resolve: PodResolver) -> str:
    """An MPI hostfile (`name slots=n` a line) with all local ranks on one line: Open MPI 5 refuses a host that it reads twice."""
    others, slots, place = list[str](), 0, 0
    for line in text.splitlines(keepends=True):
        found = _HOST_LINE.match(line)
        if found is None or not resolve(found[1]):
            others.append(line)
            continue
        place = place if slots else len(others)
        given = _SLOTS.search(found[2])
        slots += int(given[1]) if given else 1
    if slots:
        others.insert(place, f"{LOOPBACK} slots={slots}\n")
    return "".join(others)


_REWRITERS: Mapping[str, Callable[[str, Mapping[str, str], str, RewriteContext], dict[str, str]]] = {
    "host": _rewrite_host,
    "host:port": _rewrite_endpoint_variable,
    "hosts": _rewrite_hosts,
    "tf": _rewrite_tf_config,
}


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
