"""Long lists are encoded and sent in slices: the same bytes, and others have their turn meanwhile."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from rowlock import kinds
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.endpoints import list_answers
from rowlock.apiserver.endpoints.list_answers import answer_list
from rowlock.apiserver.http import responses
from rowlock.apiserver.http.requests import Target
from rowlock.apiserver.patch.patches import Patcher
from rowlock.storage.store import Store

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "x:1"}]}}}
        }
    },
}


def test_slices_are_one_list(client: httpx.Client, space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = "/apis/kubeflow.org/v1/namespaces/" + space.rsplit("/", 1)[1] + "/pytorchjobs"
    for number in range(5):
        name = {"name": f"n{number}", "labels": {"even": str(number % 2 == 0)}}
        client.post(f"{space}/secrets", json={"metadata": name, "stringData": {"a": "ü" * 50}}).raise_for_status()
        client.post(jobs, json={**JOB, "metadata": name}).raise_for_status()
    paths = [
        (f"{place}{query}", accept)
        for place in (f"{space}/secrets", jobs)
        for query in ("", "?labelSelector=even=True", "?labelSelector=even=no", "?limit=3")
        for accept in ("application/json", TABLE, METADATA)
    ]

    def read() -> list[str]:
        texts = [client.get(path, headers={"accept": accept}).raise_for_status().text for path, accept in paths]
        return [re.sub(r'"\d+s"', '"AGE"', text) for text in texts]  # a second may pass between two lists

    whole = read()
    assert len(client.get(f"{space}/secrets").json()["items"]) == 5
    monkeypatch.setattr(list_answers, "SLICE", 2)
    monkeypatch.setattr(responses, "SEND_BYTES", 100)
    assert read() == whole
    in_yaml = client.get(f"{space}/secrets", headers={"accept": "application/yaml"})
    assert in_yaml.text.count("name: n") == 5


@pytest.mark.parametrize("accept", ["application/json", TABLE, METADATA])
def test_others_have_their_turn(accept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_answers, "SLICE", 2)

    async def body() -> None:
        store, turns, sent = Store.open(None, admission=AdmissionChain, patches=Patcher()), 0, list[Any]()
        for number in range(9):
            await store.create(kinds.NAMESPACE, {"metadata": {"name": f"n{number}"}})

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def send(message: Any) -> None:
            sent.append(message)

        counting = asyncio.create_task(count_turns())
        call: Any = SimpleNamespace(header=lambda _: accept, query={}, warnings=())
        page = await store.list(kinds.NAMESPACE)
        before = turns
        await answer_list(call, send, store, Target(kinds.NAMESPACE, "", "", ""), page)
        assert turns - before >= 4, "a pause behind each two objects"
        assert sum(len(message.get("body", b"")) for message in sent) > 9 * 30
        counting.cancel()
        await store.close()

    asyncio.run(body())
