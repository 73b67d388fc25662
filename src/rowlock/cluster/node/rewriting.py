"""The pod network where namespaces are not to be had: names become 127.0.0.1 and ports become free ones. Pure.

All pods share the machine's network, and torch and TensorFlow listen on every address, so two jobs may not keep one
port. TABLE says which variables carry addresses and in which form; every (pod, port) of the cluster has one free port,
given by `ports`. Text that is not in the table is not touched: a program that has a name elsewhere must use these.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Ports = Callable[[str, int], int]
"""(pod name as written, port as written) → the port on this machine."""
Known = Callable[[str], str]
"""A name as written → the pod it means, "" for a stranger."""

LOOPBACK = "127.0.0.1"

TABLE: Mapping[str, tuple[str, str]] = {
    "MASTER_ADDR": ("host", "MASTER_PORT"),
    "PET_MASTER_ADDR": ("host", "PET_MASTER_PORT"),
    "COORDINATOR_ADDRESS": ("host", "COORDINATOR_PORT"),
    "PET_RDZV_ENDPOINT": ("host:port", ""),
    "PADDLE_MASTER": ("host:port", ""),
    "WORKER_ADDRS": ("hosts", "WORKER_PORT"),
    "TF_CONFIG": ("tf", ""),
}
"""Variable → (form, the variable that carries its port)."""
_HOST_LINE = re.compile(r"^(\S+)(.*)$", re.M)


def rewrite(env: Mapping[str, str], pod: str, known: Known, ports: Ports) -> dict[str, str]:
    """`env` as a pod on this machine's own network needs it."""
    found = dict(env)
    for variable, (form, port_variable) in TABLE.items():
        if variable in env:
            found |= _FORMS[form](variable, env, port_variable, (pod, known, ports))
    return found


Context = tuple[str, Known, Ports]


def _host(variable: str, env: Mapping[str, str], port_variable: str, context: Context) -> dict[str, str]:
    pod, known, ports = context
    target = known(env[variable]) or (pod if env[variable] in ("localhost", LOOPBACK) else "")
    if not target:
        return {}
    found = {variable: LOOPBACK}
    if env.get(port_variable, "").isdigit():
        found[port_variable] = str(ports(target, int(env[port_variable])))
    return found


def _endpoint(variable: str, env: Mapping[str, str], _: str, context: Context) -> dict[str, str]:
    return {variable: endpoint(env[variable], context)}


def endpoint(text: str, context: Context) -> str:
    """`name:port` → `127.0.0.1:free port`; without a port only the name."""
    pod, known, ports = context
    host, _, port = text.partition(":")
    target = known(host) or (pod if host in ("localhost", LOOPBACK) else "")
    if not target:
        return text
    return f"{LOOPBACK}:{ports(target, int(port))}" if port.isdigit() else LOOPBACK


def _hosts(variable: str, env: Mapping[str, str], port_variable: str, context: Context) -> dict[str, str]:
    pod, known, ports = context
    found = {variable: ",".join(LOOPBACK if known(h) else h for h in env[variable].split(","))}
    if env.get(port_variable, "").isdigit():
        found[port_variable] = str(ports(pod, int(env[port_variable])))
    return found


def _tensorflow(variable: str, env: Mapping[str, str], _: str, context: Context) -> dict[str, str]:
    try:
        config = json.loads(env[variable])
    except ValueError:
        return {}
    if not isinstance(config, dict):
        return {}
    changed = {**config, "cluster": _addresses(config.get("cluster"), context)}
    return {variable: json.dumps({k: changed[k] for k in config}, separators=(",", ":"))}


def _addresses(value: Any, context: Context) -> Any:
    if isinstance(value, str):
        return endpoint(value, context)
    if isinstance(value, list):
        return [_addresses(item, context) for item in value]
    if isinstance(value, dict):
        return {k: _addresses(v, context) for k, v in value.items()}
    return value


def hostfile(text: str, known: Known) -> str:
    """An MPI hostfile (`name slots=n` a line): every rank is here."""
    return _HOST_LINE.sub(lambda m: f"{LOOPBACK if known(m[1]) else m[1]}{m[2]}", text)


_FORMS: Mapping[str, Callable[[str, Mapping[str, str], str, Context], dict[str, str]]] = {
    "host": _host,
    "host:port": _endpoint,
    "hosts": _hosts,
    "tf": _tensorflow,
}
