"""`TrainerWebhooks`: the webhooks of JobSet and Kubeflow Trainer, as steps of the admission chain."""

from __future__ import annotations

from typing import Any

from rowlock import kinds, objects
from rowlock.api import View, WriteOptions
from rowlock.errors import BadRequest, Forbidden, Invalid, invalid
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.training.admission import jobset as jobset_webhook
from rowlock.training.admission.webhooks import AdmissionResult
from rowlock.training.jobset import pod_webhook
from rowlock.training.jobset.gangs import with_group
from rowlock.training.jobset.model import NAME_KEY
from rowlock.training.trainjob import admission as trainer_webhook
from rowlock.webhooks import go_structs

_CONTAINER = "io.k8s.api.core.v1.Container"
_DEFAULTERS = {kinds.JOB_SET: "mjobset.kb.io", kinds.TRAIN_JOB: "defaulter.trainjob.trainer.kubeflow.org"}
_JOB_UID = "batch.kubernetes.io/controller-uid"
_RUNTIMES = (kinds.TRAINING_RUNTIME, kinds.CLUSTER_TRAINING_RUNTIME)


class WebhookFailure(BadRequest):
    """A mutating webhook cannot decode the object. The API server's answer has an empty reason."""

    reason = ""


class TrainerWebhooks:
    """The `Webhooks` of `apiserver/admission/chain.py`."""

    def fill_defaults(self, kind: Kind, old: Object | None, new: Object, now: float) -> Object:
        """The object after the mutating webhook of its kind. Raises WebhookFailure if a value does not fit Go's types."""
        if kind not in _DEFAULTERS or (kind is kinds.JOB_SET and old is not None):
            return new
        if problem := go_structs.problem(kind, new.get("spec")):
            raise WebhookFailure(_denial_text(_DEFAULTERS[kind], problem))
        if go_structs.is_misshapen(kind, new):
            return new  # the schema refuses it next
        if kind is kinds.TRAIN_JOB:
            return trainer_webhook.default_trainjob(old, new, now)
        new = jobset_webhook.default_jobset(new)
        if jobs := new["spec"].get("replicatedJobs"):
            return objects.with_field(new, "spec.replicatedJobs", [go_structs.with_empty_structs(job) for job in jobs])
        return new

    def admit_pod(self, pod: Object, view: View | None, *, has_scheduler: bool) -> Object:
        """A new pod with what JobSet's webhook adds to the pods of a JobSet, and with the name of its gang. Raises Forbidden."""
        if not pod_webhook.is_of_set(pod):
            return pod
        if has_scheduler and view is not None:
            set_name = objects.labels(pod).get(NAME_KEY, "")
            jobset = view.get(kinds.JOB_SET, objects.namespace(pod), set_name)
            pod = with_group(pod, jobset) if jobset is not None else pod

        def leaders_domain(label: str) -> str | None:
            job, space = objects.labels(pod).get(_JOB_UID, ""), objects.namespace(pod)
            for other in view.by_label(kinds.POD, space, _JOB_UID, job) if view and job else ():
                index = objects.annotations(other).get(pod_webhook.COMPLETION_INDEX)
                node = (
                    view.get(kinds.NODE, "", objects.dig(other, "spec.nodeName", "")) if view and index == "0" else None
                )
                if node is not None and not objects.is_deleting(other):
                    return objects.labels(node).get(label)
            return None

        admitted = pod_webhook.admit_pod(pod, leaders_domain)
        if admitted is None:
            raise Forbidden(pod_webhook.REFUSAL)
        return admitted

    def review(self, kind: Kind, old: Object | None, new: Object, options: WriteOptions, view: View | None) -> None:
        """The validating webhook of the kind. Raises Forbidden or Invalid."""
        if kind is kinds.JOB_SET:
            _review_jobset(old, new)
        elif kind is kinds.TRAIN_JOB:
            _deny(kind, _review_trainjob(old, new, view), options)
        elif kind in _RUNTIMES:
            verdict = trainer_webhook.review_runtime(old, new, lambda value: go_structs.encode(value, _CONTAINER))
            _deny(kind, verdict, options)


def _review_jobset(old: Object | None, new: Object) -> None:
    causes = jobset_webhook.review_jobset(old, new, go_structs.encode_replicated_jobs)
    if causes:
        refusal = invalid(kinds.JOB_SET.name, objects.name(new), causes, kinds.JOB_SET.group)
        message = _denial_text(jobset_webhook.WEBHOOK, refusal.message)
        raise Invalid(message, details=refusal.details, causes=refusal.causes)


def _review_trainjob(old: Object | None, new: Object, view: View | None) -> AdmissionResult:
    runtimes = {kind.name: kind for kind in _RUNTIMES}

    def find(kind: str, namespace: str, name: str) -> Object | None:
        return view.get(runtimes[kind], namespace, name) if view else None

    jobset = view.get(kinds.JOB_SET, objects.namespace(new), objects.name(new)) if view and old else None
    return trainer_webhook.review_trainjob(old, new, find, jobset, go_structs.encode_plain)


def _deny(kind: Kind, verdict: AdmissionResult, options: WriteOptions) -> None:
    options.warnings.extend(verdict.warnings)
    if verdict.errors:
        raise Forbidden(_denial_text(f"validator.{kind.singular}.{kind.group}", verdict.message))


def _denial_text(webhook: str, why: Any) -> str:
    return f'admission webhook "{webhook}" denied the request: {why}'
