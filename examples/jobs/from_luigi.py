"""A Luigi task that trains in a Job: `python from_luigi.py DONE`, where luigi and pykube-ng are installed.

Luigi may have an environment of its own: the training runs the `python` of the cluster's server.
"""

import os
import sys
from pathlib import Path

import luigi
from luigi.contrib.kubernetes import KubernetesJobTask

PROGRAM = Path(__file__).with_name("sweep.py").resolve()


class Train(KubernetesJobTask):
    done = luigi.Parameter()  # a file that says that the training is done
    name = "train"
    kubernetes_namespace = "runai-default"
    kubeconfig_path = os.environ["KUBECONFIG"]  # without this line Luigi reads ~/.kube/config alone
    backoff_limit = 0
    poll_interval = 1
    delete_on_success = False
    print_pod_logs_on_exit = True
    spec_schema = {
        "containers": [{"name": "train", "image": "rowlock.dev/host", "command": ["python", str(PROGRAM)]}]
    }

    def signal_complete(self) -> None:
        Path(self.done).touch()

    def output(self) -> luigi.LocalTarget:
        return luigi.LocalTarget(self.done)


if __name__ == "__main__":
    sys.exit(not luigi.build([Train(done=sys.argv[1])], local_scheduler=True))
