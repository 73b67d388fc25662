"""Lives of CronJobs, step by step. Nobody waits for a clock: a step moves the last start into the past, and what is then due is made.

`last: 90` says that the last start was ninety minutes ago, so that one of `@every 1h` is due since thirty.
"""

from __future__ import annotations

from typing import Any

Step = tuple[Any, ...]
HOURLY = {"schedule": "@every 1h"}
QUIET = {"schedule": "0 0 1 1 *"}

LIVES: dict[str, list[Step]] = {
    "a start, a success and the next start": [
        ("create", HOURLY), ("last", 100), ("end", "Succeeded"), ("last", 90), ("end", "Succeeded"),
    ],
    "a failure": [("create", {**HOURLY, "job": {"backoffLimit": 0}}), ("last", 90), ("end", "Failed")],
    "two at once": [("create", HOURLY), ("last", 100), ("last", 90), ("end", "Succeeded")],
    "the next one waits": [
        ("create", {**HOURLY, "concurrencyPolicy": "Forbid"}), ("last", 100), ("last", 90), ("end", "Succeeded"),
    ],
    "the next one replaces": [("create", {**HOURLY, "concurrencyPolicy": "Replace"}), ("last", 100), ("last", 90)],
    "suspended and resumed": [
        ("create", {**HOURLY, "suspend": True}), ("last", 90), ("spec", {"suspend": False}), ("spec", {"suspend": True}), ("last", 80),
    ],
    "too late": [("create", {**HOURLY, "startingDeadlineSeconds": 60}), ("last", 90)],
    "in time": [("create", {**HOURLY, "startingDeadlineSeconds": 7200}), ("last", 90)],
    "one success is kept": [
        ("create", {**HOURLY, "successfulJobsHistoryLimit": 1}), ("last", 100), ("end", "Succeeded"), ("last", 90), ("end", "Succeeded"),
    ],
    "no success is kept": [("create", {**HOURLY, "successfulJobsHistoryLimit": 0}), ("last", 90), ("end", "Succeeded")],
    "one failure is kept": [
        ("create", {**HOURLY, "job": {"backoffLimit": 0}}), ("last", 100), ("end", "Failed"), ("last", 90), ("end", "Failed"),
    ],
    "a job made by hand": [("create", QUIET), ("by hand", "manual"), ("end", "Succeeded")],
    "jobs made by hand count for the limits": [
        ("create", {**QUIET, "successfulJobsHistoryLimit": 0}), ("by hand", "manual"), ("end", "Succeeded"),
    ],
    "an active job is deleted": [("create", HOURLY), ("last", 90), ("delete job", 1)],
    "an ended job is deleted": [("create", HOURLY), ("last", 90), ("end", "Succeeded"), ("delete job", 1)],
    "deleted with its jobs": [("create", HOURLY), ("last", 90), ("delete", "Background")],
    "deleted in the foreground": [("create", HOURLY), ("last", 90), ("delete", "Foreground")],
    "deleted without its jobs": [("create", HOURLY), ("last", 90), ("delete", "Orphan"), ("end", "Succeeded")],
    "many were missed": [("early", 30), ("create", {"schedule": "* * * * *"}), ("last", 200), ("spec", {"suspend": True})],
    "many were missed, few in time": [
        ("early", 30), ("create", {"schedule": "* * * * *", "startingDeadlineSeconds": 600}), ("last", 200), ("spec", {"suspend": True}),
    ],
    "never due": [("create", {"schedule": "0 0 31 2 *"})],
    "a template that is refused": [("create", {**HOURLY, "labels": {"a b": "c"}}), ("last", 90), ("spec", {"suspend": True})],
    "another job has the name": [("create", HOURLY), ("taken", 30), ("last", 90)],
    "its own job has the name": [("create", HOURLY), ("last", 90), ("forget",)],
    "in another zone": [("create", {**HOURLY, "timeZone": "Asia/Tokyo"}), ("last", 90)],
    "labels and annotations": [
        ("create", {**HOURLY, "labels": {"app": "x"}, "annotations": {"note": "y"}, "meta": {"labels": {"own": "z"}}}), ("last", 90),
    ],
    "a changed schedule begins at the change": [("create", QUIET), ("last", 90), ("spec", HOURLY)],
    "a changed zone begins at the change": [("create", {**HOURLY, "suspend": True}), ("last", 90), ("spec", {"timeZone": "UTC", "suspend": False})],
    "a changed template": [("create", HOURLY), ("last", 100), ("spec", {"jobTemplate": {"spec": {"backoffLimit": 3}}}), ("last", 90)],
    "a suspended job": [("create", {**HOURLY, "job": {"suspend": True}}), ("last", 90)],
    "an indexed job": [("create", {**HOURLY, "job": {"completionMode": "Indexed", "completions": 2, "parallelism": 2}}), ("last", 90), ("end", "Succeeded")],
}  # fmt: skip
