"""Make the Helm chart in `deploy/helm/rowlock` from the objects that `rowlock manifests` prints: `make docs` runs it.

What a chart's user may choose stands in the objects as a word of `_VALUES`, and becomes a reference to `.Values`. So the
chart and the plain manifests cannot differ. CRDs are in `crds/`: Helm does not delete those, nor with them users' queues.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import yaml

from rowlock import __version__
from rowlock.kinds import TRAINER
from rowlock.kube.install.monitoring import MONITOR_API_VERSION, metrics_role, service_monitor
from rowlock.kube.install.server_objects import ServerInstall, server_objects
from rowlock.kube.manifests import install_objects
from rowlock.kube.rights import DIALECT_RULES
from rowlock.objects import Object, name

CHART = Path(__file__).resolve().parents[1] / "deploy" / "helm" / "rowlock"
_NOTE = "# made by scripts/make_chart.py (`make docs`): edit src/rowlock/kube/install/server_objects.py\n"
_VALUES = {
    "VALUE-IMAGE": '"{{ .Values.image }}"',
    "VALUE-SCHEDULER": '"{{ .Values.scheduler }}"',
    "VALUE-OPERATOR": '"{{ .Values.operator }}"',
    "VALUE-STORAGE": '"{{ .Values.storage.size }}"',
    "VALUE-CLASS": '"{{ .Values.storage.class }}"',
    "VALUE-HOST": '"{{ .Values.ingress.host }}"',
    "VALUE-REPLICAS": "{{ .Values.replicas }}",
    "VALUE-ARCHIVE": '"{{ .Values.archive.url }}"',
    "VALUE-SECRET": '"{{ .Values.archive.secret }}"',
    "VALUE-CLAIM": '"{{ .Values.archive.claim }}"',
    "VALUE-PORT": "{{ .Values.archive.port }}",
    "VALUE-TLS": '"{{ .Values.tls.secret }}"',
    "VALUE-DEBUG": '"{{ .Values.debugImage }}"',
}
_SINGLE = ServerInstall(
    "VALUE-IMAGE",
    "VALUE-SCHEDULER",
    "VALUE-STORAGE",
    "VALUE-CLASS",
    "VALUE-HOST",
    operator="VALUE-OPERATOR",
    tls_secret="VALUE-TLS",
    debug_image="VALUE-DEBUG",
)
_SHARED = replace(
    _SINGLE,
    replicas="VALUE-REPLICAS",
    archive="VALUE-ARCHIVE",
    archive_secret="VALUE-SECRET",
    archive_claim="VALUE-CLAIM",
    archive_port="VALUE-PORT",
)
_OPTIONAL = {
    r"( *)- name: tls\n\1  secret:\n\1    secretName: VALUE-TLS\n": ".Values.tls.secret",
    r"( *)- name: tls\n\1  mountPath: .*\n\1  readOnly: true\n": ".Values.tls.secret",
    r"( *)- --tls-cert\n\1- .*\n\1- --tls-key\n\1- .*\n": ".Values.tls.secret",
    r"( *)- --debug-image\n\1- VALUE-DEBUG\n": ".Values.debugImage",
    r"( *)envFrom:\n\1- secretRef:\n\1    name: VALUE-SECRET\n": ".Values.archive.secret",
    r"( *)- name: archive\n\1  persistentVolumeClaim:\n\1    claimName: VALUE-CLAIM\n": ".Values.archive.claim",
    r"( *)- name: archive\n\1  mountPath: .*\n": ".Values.archive.claim",
    r"( *)storageClassName: VALUE-CLASS\n": ".Values.storage.class",
}
"""Parts of the objects, as YAML, that stand there where a value is given."""
_TOO_MANY = """{{- if and (gt (int .Values.replicas) 1) (not .Values.archive.url) }}
{{- fail "replicas above 1 need archive.url (s3://BUCKET/PREFIX): a volume is that of one pod" }}
{{- end }}
"""
VALUES = """# The server's image, made with `docker build -f deploy/Dockerfile -t IMAGE .`
image: rowlock:{version}
# Who places the pods of jobs: own (rowlock), kai, volcano, kueue, coscheduling, cluster (the default scheduler), auto (what is installed)
scheduler: own
# Who makes the pods of jobs: kubeflow (its training operator), or own (rowlock, which brings the kinds of jobs)
operator: kubeflow
# Whether the server may make, read and change the Secrets of all namespaces: the credentials of its owner need it, and users with tokens
# of their own do not
credentials: false
# The image of the debug containers that `rowlock why` adds to pods without py-spy, which has Python and py-spy: the server's own has both.
# "" = none, and no right to add them
debugImage: ""
# How many servers: more than one need archive.url. Any of them answers; one schedules, and one writes the archive
replicas: 1
# The archive that all servers share: s3://BUCKET/PREFIX, or file:///var/lib/rowlock-archive; "" = the volume below, for one server
archive:
  url: ""
  # A Secret of this namespace whose keys become variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL
  secret: ""
  # A ReadWriteMany claim of this namespace, which all servers mount, for the url file:///var/lib/rowlock-archive
  claim: ""
  # The storage's port, which the NetworkPolicy opens
  port: 443
# A Secret of this namespace with tls.crt and tls.key, as cert-manager makes them: what clients see who name the server. "" = each
# server has a certificate of its own
tls:
  secret: ""
# The volume of the archive; with the class "" the cluster's default is used. With archive.url: the size of each server's copy
storage:
  size: 10Gi
  class: ""
# The name under which an Ingress leads to the server; "" = no Ingress
ingress:
  host: ""
# Whether the Prometheus operator is told of /metrics, where its kind ServiceMonitor is there; the ClusterRole rowlock-metrics
# lets who reads it in: bind it to the service account of Prometheus, unless that may read /metrics already
metrics:
  serviceMonitor: false
"""
CHART_FILE = """apiVersion: v2
name: rowlock
description: "Distributed training on Kubernetes: gangs, quotas, and why a job waits or failed"
type: application
version: {version}
appVersion: "{version}"
kubeVersion: ">=1.27.0-0"
"""


def chart_files() -> dict[str, str]:
    """Path in the chart → text."""
    everything = install_objects(scheduler="own", crds=True, operator="own", is_shared=True)
    objects = [obj for obj in everything if obj["kind"] != "Namespace"]
    definitions = [obj for obj in objects if obj["kind"] == "CustomResourceDefinition"]
    trainer = [obj for obj in definitions if obj["spec"]["group"] in {kind.group for kind in TRAINER}]
    operating = [_keep(obj) for obj in definitions if obj["spec"]["group"] == "kubeflow.org"]
    crds = [obj for obj in definitions if obj not in trainer and obj["spec"]["group"] != "kubeflow.org"]
    operating += [obj for obj in objects if name(obj) in ("rowlock-operator", "rowlock-trainer")]
    scheduling = [obj for obj in objects if name(obj) == "rowlock-scheduler"]
    archiving = [obj for obj in objects if name(obj) == "rowlock-archive"]
    rest = [obj for obj in objects if obj not in (*definitions, *operating, *scheduling, *archiving)]
    rest = [_keep(obj) if obj["kind"] == "PriorityClass" else obj for obj in rest]
    single = [_keep(obj) if obj["kind"] == "PersistentVolumeClaim" else obj for obj in server_objects(_SINGLE)]
    shared = server_objects(_SHARED)
    common = [obj for obj in single if obj in shared and obj["kind"] != "Ingress"]
    ingress = [obj for obj in single if obj["kind"] == "Ingress"]
    own = _text([obj for obj in single if obj not in (*common, *ingress)])
    ours = _text([obj for obj in shared if obj not in (*common, *ingress)])
    return {
        "Chart.yaml": CHART_FILE.format(version=__version__),
        "values.yaml": VALUES.format(version=__version__),
        "crds/scheduling.yaml": _text(crds),
        "templates/rights.yaml": _text(rest),
        "templates/scheduler-rights.yaml": _when('eq .Values.scheduler "own"', _text(scheduling)),
        "templates/credentials.yaml": _when(".Values.credentials", _text(_rights_of("rowlock-credentials"))),
        "templates/debug-rights.yaml": _when(".Values.debugImage", _text(_rights_of("rowlock-debug"))),
        "templates/other-schedulers.yaml": _other_schedulers(),
        "templates/operator.yaml": _when('eq .Values.operator "own"', _text(operating)),
        "templates/trainer-kinds.yaml": _when('eq .Values.operator "own"', "---\n".join(map(_unless_foreign, trainer))),
        "templates/archive-rights.yaml": _when(".Values.archive.url", _text(archiving)),
        "templates/server.yaml": _TOO_MANY + _text(common),
        "templates/single-server.yaml": _when("not .Values.archive.url", own),
        "templates/servers.yaml": _when(".Values.archive.url", ours),
        "templates/monitoring.yaml": _when(".Values.metrics.serviceMonitor", _monitoring()),
        "templates/ingress.yaml": _when(".Values.ingress.host", _text(ingress)),
    }


def _rights_of(role: str) -> list[Object]:
    """Of a role that only some installations have."""
    everything = install_objects(scheduler="own", crds=True, credentials=True, debug=True)
    return [obj for obj in everything if name(obj) == role]


def _other_schedulers() -> str:
    """What is needed to submit to each, where it is the one that was chosen, or may be found."""
    objects, texts = install_objects(scheduler="auto", crds=True), []
    for scheduler in DIALECT_RULES:
        condition = f'or (eq .Values.scheduler "{scheduler}") (eq .Values.scheduler "auto")'
        texts.append(_when(condition, _text([obj for obj in objects if name(obj) == f"rowlock-{scheduler}"])))
    return "---\n".join(texts)


def _monitoring() -> str:
    """A cluster without the kind would refuse the whole release."""
    condition = f'.Capabilities.APIVersions.Has "{MONITOR_API_VERSION}"'
    return _text([metrics_role()]) + _when(condition, "---\n" + _text([service_monitor()]))


def _unless_foreign(definition: Object) -> str:
    """A kind that JobSet or Trainer may have brought already: theirs stays as it is."""
    found = f'lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "{name(definition)}"'
    own = '(eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found) .Release.Name)'
    return f"{{{{- $found := {found} }}}}\n" + _when(f"or (not $found) {own}", _text([_keep(definition)]))


def _keep(obj: Object) -> Object:
    """What ran, and the jobs of users with what they name, stay when the release is deleted."""
    return {**obj, "metadata": {**obj["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}}


def _when(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def _text(objects: list[Object]) -> str:
    text = _NOTE + yaml.safe_dump_all(objects, sort_keys=False, width=1000)
    text = text.replace("- VALUE-HOST,", '- "{{ with .Values.ingress.host }}{{ . }},{{ end }}VALUE-REST')
    lines = [line + '"' if "VALUE-REST" in line else line for line in text.splitlines(keepends=False)]
    text = "\n".join(lines).replace("VALUE-REST", "") + "\n"
    for pattern, condition in _OPTIONAL.items():
        text = re.sub(f"(?m)^{pattern}", lambda found, when=condition: _when(when, found[0]), text)
    for word, reference in _VALUES.items():
        text = text.replace(word, reference)
    return text


def main() -> int:
    """With `--check` nothing is written; exit code 1 when the chart is not the one of the manifests."""
    if sys.argv[1:] == ["--check"]:
        stale = [path for path, text in chart_files().items() if (CHART / path).read_text() != text]
        print(f"the chart is older than the manifests: run `make docs` ({', '.join(stale)})" if stale else "")
        return 1 if stale else 0
    for path, text in chart_files().items():
        target = CHART / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    print(f"wrote {CHART.relative_to(CHART.parents[2])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
