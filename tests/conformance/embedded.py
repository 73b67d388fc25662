"""Our server as the suite needs it: in full, but with no job operator that would write to the jobs under test.

python -m tests.conformance.embedded --data-dir D --without kubelet,scheduler
"""

from __future__ import annotations

import sys

from rowlock.api import Controller
from rowlock.assembly import Server, serve
from rowlock.cluster import LocalCluster
from rowlock.serve import parse_arguments, start_certificates
from rowlock.system import registry as system


class Quiet(LocalCluster):
    """Only garbage is collected here."""

    def controllers(self) -> list[Controller]:
        return list(system.deleting_controllers())


class QuietServer(Server):
    def cluster(self) -> LocalCluster:
        return Quiet(self.settings())


if __name__ == "__main__":
    options = parse_arguments(sys.argv[1:])
    sys.exit(serve(options, start_certificates(options.data_dir), QuietServer))
