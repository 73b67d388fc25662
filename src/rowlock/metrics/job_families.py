"""Families of `/metrics` about running jobs. Their names and labels are those of dstack, with the prefix of rowlock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rowlock.rest.hours.live_jobs import LiveJob

_LABELS = ("rowlock_project_name", "rowlock_user_name", "rowlock_run_name", "rowlock_run_id")
_OF_GPU = (*_LABELS, "rowlock_job_name", "rowlock_gpu")


def live_job_families(jobs: Sequence[LiveJob]) -> Iterator[Metric]:
    """For how long each job runs, how many GPUs it holds, and how busy they are."""
    seconds = CounterMetricFamily("rowlock_job_duration_seconds", "Seconds for which the job runs.", labels=_LABELS)
    count = GaugeMetricFamily("rowlock_job_gpu_count", "GPUs that the job's pods hold.", labels=_LABELS)
    ratio = GaugeMetricFamily("rowlock_job_gpu_usage_ratio", "How busy a GPU of a pod is, from 0 to 1.", labels=_OF_GPU)
    memory = GaugeMetricFamily("rowlock_job_gpu_memory_usage_bytes", "Memory of a pod on a GPU.", labels=_OF_GPU)
    for job in jobs:
        labels = (job.project, job.user, job.name, job.id)
        seconds.add_metric(labels, job.seconds)
        count.add_metric(labels, job.gpus)
        for one in job.measured:
            memory.add_metric((*labels, one.pod, one.gpu), one.memory_bytes)
            if one.ratio is not None:
                ratio.add_metric((*labels, one.pod, one.gpu), one.ratio)
    yield from (seconds, count, ratio, memory)
