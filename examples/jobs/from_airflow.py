"""An Airflow DAG whose task is an Indexed Job, a sweep: `airflow db migrate; python from_airflow.py` runs it once.

It needs apache-airflow-providers-cncf-kubernetes, and this file's folder as AIRFLOW__CORE__DAGS_FOLDER.
"""

import datetime
import os
import sys
from pathlib import Path

from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.sdk import DAG

PROGRAM = Path(__file__).with_name("sweep.py").resolve()

with DAG("sweep", schedule=None, start_date=datetime.datetime(2026, 1, 1)) as dag:
    KubernetesJobOperator(
        task_id="train",
        name="sweep",
        namespace="runai-default",
        image="rowlock.dev/host",
        cmds=["python", str(PROGRAM)],
        config_file=os.environ["KUBECONFIG"],
        completion_mode="Indexed",
        completions=3,
        parallelism=3,
        backoff_limit=0,
        wait_until_job_complete=True,
        job_poll_interval=1,
        get_logs=True,
        on_finish_action="keep_pod",
    )

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
