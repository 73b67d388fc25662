"""The page of limits says what the code has."""

from __future__ import annotations

from pathlib import Path

from rowlock import api, errors
from rowlock.accounts import login_limits, passwords, user_accounts, user_credentials
from rowlock.apiserver.http import request_body, requests
from rowlock.apiserver.patch import json_patch
from rowlock.apiserver.streams import port_forward
from rowlock.archive import redaction
from rowlock.audit import audit_log
from rowlock.authorization import policy_rules
from rowlock.browser import event_stream, feed, sessions
from rowlock.cli.source import snapshot as source_snapshot
from rowlock.diagnostics import stack_dumps
from rowlock.documents import patched_document, words, yaml_reader
from rowlock.http_server import connection_limits, http_protocol, tls
from rowlock.kubelet.node import machine
from rowlock.kubelet.pod import directory, exec_space
from rowlock.kubelet.shim import pod_host
from rowlock.kubelet.volumes import volumes
from rowlock.rest import call
from rowlock.rest.notifications import trial
from rowlock.rest.sweeps import submits, views
from rowlock.storage import store, watch_cache, write_verbs
from rowlock.sweeps import reconcile, sweep
from rowlock.system import event_expiry
from rowlock.workloads import body_fields, dry_run_gangs, list_query

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
MIB = 1 << 20


def test_every_figure_is_that_of_the_code() -> None:
    rows = (
        f"| {http_protocol.HEAD_LIMIT >> 10} KiB, {http_protocol.HEADER_COUNT_LIMIT} headers |",
        f"whose it is | {http_protocol.BODY_CEILING // MIB} MiB |",
        f"Kubernetes API | {requests.BODY_LIMIT // MIB} MiB |",
        f"REST API | {call.MAX_BODY_BYTES // MIB} MiB |",
        f"which needs no token | {call.MAX_TOKEN_BODY_BYTES >> 10} KiB |",
        f"stored | {write_verbs.MAX_OBJECT_BYTES / MIB:.1f} MiB",
        f"| {http_protocol.FIRST_S:.0f} s, {http_protocol.REQUEST_S:.0f} s |",
        f"a quarter, at most {connection_limits.REMOTE_LIMIT:,} |",
        f"TLS handshake | {tls.HANDSHAKE_S:.0f} s |",
        f"on a connection | {http_protocol.PIPELINE_LIMIT} |",
        f"| {sessions.CODE_LIFETIME_S / 60:.0f} minutes, {sessions.CODE_ATTEMPTS} wrong attempts, {sessions.CODES_PER_TOKEN} open",
        f"session of the web UI | {sessions.SESSION_LIFETIME_S / 3600:.0f} hours |",
        f"| {feed.MAX_READERS_OF_USER} for each user, {feed.MAX_READERS} in all",
        f"takes nothing | {event_stream.SEND_TIMEOUT_S:.0f} s |",
        f"what git ignores | {source_snapshot.SIZE_LIMIT // MIB} MiB |",
        f"of a submit | {body_fields.MOST_CAUSES} |",
        f"together | {body_fields.MOST_ITEMS:,} |",
        f"filters of a list | {list_query.MAX_FILTERS} |",
        f"what if* {dry_run_gangs.MOST_PODS:,} pods",
        f"/64 network) | {login_limits.MAX_FAILURES} in {login_limits.WINDOW_S:.0f} s |",
        f"from all | {user_accounts.FAILURES_OF_ONE} in {user_accounts.WINDOW_OF_ONE_S:.0f} s, {user_accounts.FAILURES_OF_ALL} in {user_accounts.WINDOW_OF_ALL_S:.0f} s |",
        f"that wait | {passwords.WORKERS}, {passwords.MAX_WAITING}; {passwords.MEMORY_KIB >> 10} MiB",
        f"| {passwords.MIN_LENGTH} characters to {passwords.MAX_BYTES:,} bytes, {user_accounts.MAX_NAME_LENGTH} characters |",
        f"| accounts | {user_accounts.MAX_ACCOUNTS:,} |",
        f"of all users | {user_credentials.MAX_OF_ONE}, {user_credentials.MAX_BYTES_OF_ONE // MIB} MiB, {user_credentials.MAX_BYTES // MIB} MiB |",
        f"| {audit_log.MAX_BYTES // MIB} MiB a file, {audit_log.KEPT_FILES} older ones; {audit_log.MAX_WAITING:,} lines that wait for the disk; {audit_log.MAX_STRANGERS} refusals",
        f"characters: {redaction.MOST_WORK // MIB} Mi |",
        f"| {json_patch.MAX_OPERATIONS:,} operations, {patched_document.MAX_COPIED_BYTES // MIB} MiB |",
        f"and removes | {patched_document.MAX_MOVED_ITEMS:,} |",
        f"| {policy_rules.MOST_PARTS:,} single ones (a verb of a resource of a group), {policy_rules.MOST_COMPARISONS:,} comparisons |",
        f"one line | {words.LONGEST:,} characters |",
        f"who ask `why` | {stack_dumps._MAX_PARALLEL};",
        f"of a container | {volumes.MOST_VOLUMES:,} each |",
        f"| {volumes.MOST_FILES:,} files, {volumes.MOST_FILE_BYTES // MIB} MiB; {volumes.MOST_TOKENS} tokens |",
        f"{exec_space.LONGEST_STRING >> 10} KiB each, as exec has it; {exec_space.MOST_REFERENCES:,} references |",
        f"for one request, works on one | {pod_host.MAX_REQUEST_BYTES // MIB} MiB, two minutes |",
        f"one answer | {errors.MAX_CAUSES} |",
        f"| a write, with the object that it changes, that is checked on the event loop | {api.LARGE_WRITE >> 10} KiB |",
        f"| {request_body.LARGE_JSON >> 10} KiB of JSON, {request_body.LARGE_YAML >> 10} KiB of YAML |",
        f"| {yaml_reader.MAX_DEPTH} levels |",
        f"| {store.WATCH_WINDOW:,} changes in memory, {watch_cache.WINDOW_BYTES >> 20} MiB of JSON",
        f"of all its runs | {sweep.MOST_BYTES:,} bytes, {submits._MOST_RUN:,} and {submits._MOST_PARAMETERS:,} characters |",
        f"made at a time | {reconcile.MOST_CREATED}; of large ones {reconcile._MOST_CHARACTERS:,} characters",
        f"a sweep's runs | {views._LONGEST_COMMAND:,} characters |",
        f"of one project | {trial._MOST_WAITING}; two go out",
        f"`generateName` | {write_verbs.GENERATE_ATTEMPTS} |",
        f"| Events | an hour after they were last seen (`rowlock up --event-ttl`), {event_expiry.MAX_EVENTS:,} at a time |",
        f"pods of a node | {machine.MAX_PODS:,} ",
        f"the newest {directory.MAX_KEPT_POD_LOGS:,} pods, {directory.MAX_KEPT_LOG_BYTES >> 30} GiB |",
        f"port-forward | {port_forward.MAX_CONNECTIONS} connections ",
    )
    missing = [row for row in rows if row not in PAGE]
    assert not missing, f"docs/limits.md says something else than the code: {missing}"
