"""Both servers are asked the same, call by call; what they answer is compared, and in the end what a watch tells.

What servers choose for themselves is normalised: uids and resourceVersions count in the order in which they come.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import yaml
from tests.differential.calls import Json, Request, Sort, history, sorts_of
from tests.differential.picture import compared
from tests.error_contract import without_internals

PANIC = "panic"
_PROTECTION = "kubernetes.io/pvc-protection"
_MADE_BY_THEMSELVES = {"kube-root-ca.crt", "default"}
_VOLATILE = (
    (r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\bg-[a-z0-9]{5}\b", "g-XXXXX"),
    (r"\bkube-api-access-[a-z0-9]{5}\b", "kube-api-access-XXXXX"),
    (r"(?s)(if it was previously negative\)|for bound claims).*$", r"\1"),  # Go's structures, line by line
    (r"typed patch object \((NAMESPACE)?/", "typed patch object (/"),
    (r"recondition \(\d+\) does not match the ResourceVersion in record \(\d+\)", "recondition does not match"),
    (r"Too large resource version: \d+, current: \d+", "Too large resource version"),
)


@dataclass
class Asked:
    """One server, in one history's namespace, and what it has said so far."""

    http: httpx.AsyncClient
    namespace: str
    marks: dict[str, str] = field(default_factory=dict)
    objects: dict[str, Json] = field(default_factory=dict)
    firsts: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    asked: str = ""
    """The path of the call that is being answered."""

    async def answer(self, request: Request) -> Json:
        path = self.asked = request.path.replace("{ns}", self.namespace)
        base = re.sub("/(status|scale)$", "", path)
        known = {**self.objects.get(base, {}).get("metadata", {}), "first": self.firsts.get(base, "0")}
        known["token"] = self.tokens.get(path, "")
        query = {key: str(self._filled(value, known, path)) for key, value in request.query.items()}
        headers = {"Accept": request.accept, "User-Agent": "fuzz/1"}
        content = None
        if request.body is not None:
            content = json.dumps(self._filled(request.body, known, path)).encode()
            headers["Content-Type"] = request.media
        try:
            answer = await self.http.request(request.method, path, params=query, content=content, headers=headers)
        except httpx.RemoteProtocolError:  # so a real server leaves who made it panic
            return {"status": PANIC}
        found = _parsed(answer)
        if answer.status_code < 300 and request.method != "GET" and "persistentvolumeclaims/" in path:
            await self._settled(base)
        await self._remember(path, base, found, answer.status_code)
        return {
            "status": answer.status_code,
            "type": answer.headers.get("content-type", ""),
            "warnings": answer.headers.get_list("warning"),
            "body": self.normal(found),
        }

    @property
    def unsteady(self) -> bool:
        """Whether controllers write to what is asked for, as they do to claims."""
        return "persistentvolumeclaims" in self.asked

    async def _remember(self, path: str, base: str, found: Json, code: int) -> None:
        if isinstance(found, dict) and "continue" in (found.get("metadata") or {}):
            self.tokens[path] = found["metadata"]["continue"]
        if code >= 300:
            return
        for known in {base, *self.objects}:
            now = await self.http.get(known)
            if now.status_code == 200 and "items" not in now.json():
                self._know(known, now.json())
        name = (found.get("metadata") or {}).get("name") if isinstance(found, dict) else None
        if name and path == base and f"{path}/{name}" not in self.objects and "items" not in found:
            now = await self.http.get(f"{path}/{name}")
            if now.status_code == 200:
                self._know(f"{path}/{name}", now.json())

    def _know(self, path: str, obj: Json) -> None:
        self.objects[path] = obj
        self.firsts.setdefault(path, obj["metadata"].get("resourceVersion", "0"))

    async def _settled(self, path: str) -> None:
        """Controllers have to let go of what was deleted, and to protect what was not."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            now = await self.http.get(path)
            if now.status_code != 200 or "items" in now.json():
                return
            meta = now.json()["metadata"]
            if ("deletionTimestamp" in meta) != (_PROTECTION in meta.get("finalizers", ())):
                return
            await asyncio.sleep(0.05)

    def _filled(self, value: Json, known: dict[str, Json], path: str) -> Json:
        if isinstance(value, dict):
            if "$object" in value:
                return self._changed(value["$object"], known, path)
            return {k: self._filled(v, known, path) for k, v in value.items()}
        if isinstance(value, list):
            return [self._filled(v, known, path) for v in value]
        if not isinstance(value, str):
            return value
        stands = {"$rv": known.get("resourceVersion", "0"), "$uid": known.get("uid", "none"), "$old": known["first"]}
        stands["$token"] = known["token"]
        return stands.get(value, value).replace("{ns}", self.namespace)

    def _changed(self, part: Json, known: dict[str, Json], path: str) -> Json:
        base = re.sub("/(status|scale)$", "", path)
        obj = self.objects.get(base, {"metadata": {"name": base.rpartition("/")[2]}})
        if path.endswith("/scale"):
            meta = {k: v for k, v in obj["metadata"].items() if k in ("name", "namespace", "uid", "resourceVersion")}
            obj = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta}
        return _merge(obj, self._filled(part, known, path))

    # ------------------------------------------------------------ what is compared

    def normal(self, value: Json, key: str = "") -> Json:
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            if key == "managedFields":  # which our controllers do not write
                value = [v for v in value if v.get("manager") != "kube-controller-manager"]
            if key == "items":
                value = [v for v in value if (v.get("metadata") or {}).get("name") not in _MADE_BY_THEMSELVES]
            if key == "rows":
                value = [v for v in value if v["object"]["metadata"]["name"] not in _MADE_BY_THEMSELVES]
            found = [self.normal(v, key + "[]") for v in value]
            return sorted(found, key=str) if key in ("managedFields", "causes") else found
        if not isinstance(value, str):
            return value
        if key == "resourceVersion" and self.unsteady:
            return key
        if key in ("resourceVersion", "uid") and value not in ("", "0", "other", "none"):
            return self.marks.setdefault(value, f"{key} {len(self.marks)}")
        if key == "continue":
            return "TOKEN" if value else ""
        text = value.replace(self.namespace, "NAMESPACE")
        for mark, stands_for in self.marks.items():
            if len(mark) > 20:
                text = text.replace(mark, stands_for)
        for pattern, stands_for in _VOLATILE:
            text = re.sub(pattern, stands_for, text)
        return without_internals(text)

    def _object(self, value: dict[str, Json]) -> Json:
        listed = "items" in value or "rows" in value
        found: dict[str, Json] = {}
        for key in sorted(value):
            if listed and key == "metadata":
                found[key] = {
                    k: self.normal(v, k)
                    for k, v in value[key].items()
                    if k not in ("resourceVersion", "remainingItemCount")
                }
            elif key == "columnDefinitions":
                found[key] = [column["name"] for column in value[key]]
            elif key == "cells":
                found[key] = ["AGE" if re.fullmatch(r"\d+s", str(cell)) else self.normal(cell) for cell in value[key]]
            elif not (key == "managedFields" and not value[key]):
                found[self.normal(key)] = self.normal(value[key], key)
        if value.get("code", 0) == 422 and isinstance(value.get("details"), dict) and "causes" in value["details"]:
            causes = found["details"]["causes"]  # a real server checks some things twice
            found["details"]["causes"] = [c for i, c in enumerate(causes) if c not in causes[:i]]
        return found

    # ------------------------------------------------------------ watches

    async def start(self, sorts: Iterable[Sort]) -> dict[str, str]:
        found = {}
        await self._made()
        for sort in sorts:
            path = sort.path().replace("{ns}", self.namespace)
            found[path] = (await self.http.get(path)).json()["metadata"]["resourceVersion"]
        return found

    async def _made(self) -> None:
        await self.http.post("/api/v1/namespaces", json={"metadata": {"name": self.namespace}})
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        deadline = time.monotonic() + 60
        while (await self.http.get(f"{account}/default")).status_code != 200:
            if self.http.headers.get("x-side") == "ours":
                await self.http.post(account, json={"metadata": {"name": "default"}})
            assert time.monotonic() < deadline, "no service account"
            await asyncio.sleep(0.05)
        authority = f"/api/v1/namespaces/{self.namespace}/configmaps"
        while (
            await self.http.get(f"{authority}/kube-root-ca.crt")
        ).status_code != 200:  # a page's end may be before it
            if self.http.headers.get("x-side") == "ours":
                await self.http.post(authority, json={"metadata": {"name": "kube-root-ca.crt"}})
            assert time.monotonic() < deadline, "no authority"
            await asyncio.sleep(0.05)

    async def told(self, path: str, since: str) -> list[Json]:
        query = {"watch": "1", "resourceVersion": since, "timeoutSeconds": "1"}
        text = (await self.http.get(path, params=query)).text
        events = [json.loads(line) for line in text.splitlines() if line]
        ours = [e for e in events if self._of_history(e["object"])]
        return [self.normal(e) for e in ours]

    def _of_history(self, obj: Json) -> bool:
        meta = obj.get("metadata") or {}
        mine = meta.get("namespace") == self.namespace or str(meta.get("name")).startswith(self.namespace)
        return mine and meta.get("name") not in _MADE_BY_THEMSELVES


def _merge(one: Json, two: Json) -> Json:
    if not isinstance(one, dict) or not isinstance(two, dict):
        return two
    out = dict(one)
    for key, value in two.items():
        out.pop(key, None)
        if value is not None:
            out[key] = _merge(one.get(key), value)
    return out


def _parsed(answer: httpx.Response) -> Json:
    try:
        return answer.json()
    except ValueError:
        return answer.text


@asynccontextmanager
async def client(kubeconfig: Path, side: str) -> AsyncIterator[httpx.AsyncClient]:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    headers = {"Authorization": f"Bearer {user['token']}", "x-side": side}
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    limits = httpx.Limits(max_connections=30)
    async with httpx.AsyncClient(
        base_url=cluster["server"], headers=headers, verify=tls, timeout=200, limits=limits
    ) as http:
        yield http


async def differences(real: httpx.AsyncClient, ours: httpx.AsyncClient, requests: tuple[Request, ...]) -> list[str]:
    """Of one history; it ends with the first call that is answered otherwise."""
    namespace = "calls-" + uuid.uuid4().hex[:8]
    sides = [Asked(real, namespace), Asked(ours, namespace)]
    since = await asyncio.gather(*(side.start(sorts_of(requests)) for side in sides))
    for number, request in enumerate(requests):
        first, second = await asyncio.gather(*(side.answer(request) for side in sides))
        if _parted(first, second):
            return []
        if found := compared("", first, second):
            return [f"call {number}: {request.text()}", *found]
    for path in since[0]:
        if "persistentvolumeclaims" in path:
            continue
        told = await asyncio.gather(*(side.told(path, since[i][path]) for i, side in enumerate(sides)))
        if found := compared(f"watch {path}", *told):
            return found
    return []


def _has_service_address(answer: Json) -> bool:
    body = answer["body"] if isinstance(answer.get("body"), dict) else {}
    if body.get("kind") == "Table":
        columns = body.get("columnDefinitions") or ()
        cells = [row["cells"][columns.index("Cluster-IP")] for row in body["rows"]] if "Cluster-IP" in columns else []
        return any(cell not in ("None", "<none>") for cell in cells)
    return body.get("kind") == "Service" and (body.get("spec") or {}).get("clusterIP") not in (None, "", "None")


def _parted(real: Json, ours: Json) -> bool:
    """Whether the two go different ways here and mean to: there is nothing to compare any more.

    A real server panics where a JSON patch reaches below a null. The addresses that it gives services are others, and ours
    warns of those that lead nowhere. And the
    operator's webhook, which is a part of ours, is not there where a real cluster has the operator's kinds alone."""
    said = str(ours["body"].get("message")) if isinstance(ours.get("body"), dict) else ""
    return bool(
        (real["status"] == PANIC and ours["status"] == 422)
        or _has_service_address(ours)
        or any("a Service without a selector leads nowhere" in warning for warning in ours.get("warnings") or ())
        or (ours["status"] == 403 and said.startswith('admission webhook "validator.'))
    )


async def play(real: Path, ours: Path, seeds: Iterable[int], together: int = 8) -> dict[int, list[str]]:
    """Histories that differ, by their seeds."""
    room, wrong = asyncio.Semaphore(together), {}

    async def one(first: httpx.AsyncClient, second: httpx.AsyncClient, seed: int) -> None:
        async with room:
            if found := await differences(first, second, history(seed)):
                wrong[seed] = found

    async with client(real, "real") as first, client(ours, "ours") as second:
        for side in (first, second):  # the one object that histories make outside of what is theirs
            await side.delete("/apis/scheduling.k8s.io/v1/priorityclasses/zz")
        async with asyncio.TaskGroup() as tasks:
            for seed in seeds:
                tasks.create_task(one(first, second, seed))
    return dict(sorted(wrong.items()))


def main(argv: list[str]) -> None:
    """python -m tests.differential.asking REAL OURS [FROM] [TO]"""
    first, last = int(argv[2]) if len(argv) > 2 else 0, int(argv[3]) if len(argv) > 3 else 100
    found: dict[int, list[str]] = asyncio.run(play(Path(argv[0]), Path(argv[1]), range(first, last)))
    for seed, lines in found.items():
        print(f"seed {seed}", *lines, sep="\n  ")
    print(f"{last - first} histories, {sum(len(history(s)) for s in range(first, last))} calls, {len(found)} differ")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
