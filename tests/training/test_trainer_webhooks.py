"""What the webhooks of JobSet and Kubeflow Trainer, and the schemas of their kinds, answer: every recorded admission."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from typing import Any

import pytest
from tests.training.trainer_cases import cases, title

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.errors import ApiError
from rowlock.kinds import CLUSTER_TRAINING_RUNTIME, NAMESPACE, Kind
from rowlock.storage.store import Store, no_logs
from rowlock.training.trainjob.runtimes import shipped_runtimes
from rowlock.webhooks.trainer_webhooks import TrainerWebhooks

Json = Any
SPACE = "tc-space"
CASES = [(name, case) for name in ("jobset-admission", "trainjob-admission") for case in cases(name)]


def tidy(text: str) -> str:
    """A sentence without what differs from run to run: times, and the order of several errors."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "$TIME", text)
    listed = re.fullmatch(r"(.*?: )\[(.*)\]", text, re.S)
    if not listed:
        return text
    parts = re.split(r", (?=(?:\.?spec|metadata|<nil>)[.\[:])", listed[2])
    return f"{listed[1]}[{', '.join(sorted(parts))}]"


class Asker:
    """Somebody who writes objects to a store, and notes what is answered."""

    def __init__(self, store: Store) -> None:
        self.store, self.answers = store, list[str]()

    async def create(self, obj: Json) -> Json | None:
        kind = kinds.by_object(obj)
        obj = json.loads(json.dumps(obj).replace("$NS", SPACE))
        if kind.namespaced:
            obj["metadata"]["namespace"] = SPACE
        return await self._note("POST", kind, partial(self.store.create, kind, obj))

    async def change(self, kind: Kind, name: str, spec: Json) -> Json | None:
        patch = partial(self.store.patch, kind, SPACE if kind.namespaced else "", name, {"spec": spec})
        return await self._note("PATCH", kind, patch)

    async def _note(self, verb: str, kind: Kind, write: Any) -> Json | None:
        options = WriteOptions(validation="Warn", manager="tests", warnings=[])
        found = None
        try:
            found = await write(options=options)
        except ApiError as error:
            text = tidy(error.message).replace(SPACE, "$NS")
            self.answers.append(f"{verb} {kind.name}: {error.code} {error.reason}: {text}")
        self.answers += [f"Warning: {sentence}" for sentence in sorted(options.warnings)]
        return found


async def played(case: Json) -> Json:
    """The answers to a case, and the spec that is kept in the end."""
    admission = partial(AdmissionChain, webhooks=TrainerWebhooks())
    store = Store.open(None, admission=admission, patches=Patcher(), log_source=no_logs)
    try:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
        await store.create(NAMESPACE, space)
        for runtime in shipped_runtimes():
            await store.create(CLUSTER_TRAINING_RUNTIME, runtime)
        asker, sent, found = Asker(store), None, None
        for step in case["steps"]:
            for obj in step["do"].get("setup", ()):
                await asker.create(obj)
            if "admit" in step["do"]:
                sent = step["do"]["admit"]
                found = await asker.create(sent)
                if found is not None and "change" in step["do"]:
                    found = await asker.change(kinds.by_object(sent), sent["metadata"]["name"], step["do"]["change"])
        kept = json.loads(tidy(json.dumps((found or {}).get("spec"))))
        is_new = sent is not None and kept and kept != sent.get("spec")
        return {"answers": asker.answers, **({"stored": kept} if is_new else {})}
    finally:
        await store.close()


def as_recorded(variant: Json) -> Json:
    """The record, with the lists of supported values as it was made: sorted."""
    return {**variant, "answers": [tidy(answer) for answer in variant["answers"]]}


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}: {title(case)}" for name, case in CASES])
def test_the_answer_is_as_recorded(name: str, case: Json) -> None:
    accepted = [as_recorded(v) for step in case["steps"] for v in step.get("variants", ())]
    assert asyncio.run(played(case)) in accepted


def test_there_are_as_many_as_were_recorded() -> None:
    assert len(CASES) == 34 + 54
