"""A real Kubernetes control plane on loopback, for tests: `python scripts/real_cluster build|up|down|where`.

    build            build what `recipe.py` pins (needs Go; minutes when cold, nothing when already built)
    build --kwok     … and kwok, which plays the kubelets of pretend nodes in benchmarks
    build --within 1200 --or-say    … in at most 20 minutes; without Go or a network say so and succeed (for CI)
    up DIR           start etcd, kube-apiserver and controller-manager with their state in DIR; print the kubeconfig
    up DIR --crds    … and the kinds of the training operator without the operator
    up DIR --operator --scheduler --kubelet    … and the operator itself, the default scheduler, one real node
    image DIR NAME -- COMMAND…    an image on that node, of which this is the program; it sees this machine's files
    can-run-a-node   print what this machine lacks for `up --kubelet`; nothing where it lacks nothing
    down DIR         stop what `up DIR` started; DIR stays, for its logs
    where            print the directory of the binaries, built or not

`ROWLOCK_REAL_CLUSTER_BIN` names a directory of binaries that somebody built already; nothing is built then.
"""

import argparse
import os
import sys
from pathlib import Path

from control_plane import Plane, start, start_controllers, start_scheduler
from node import add_image, require_node, start_node, stop_node
from recipe import Missing, build, directory
from training_operator import apply_crds, start_operator

from processes import stop

PARTS = {"operator": start_operator, "scheduler": start_scheduler, "kubelet": start_node}
"""What may stand beside the control plane, in the order in which it is started."""


def main() -> int:
    args = _arguments()
    try:
        return _run(args)
    except Missing as error:
        print(f"real-cluster: {error}", file=sys.stderr)
        return 3
    except (RuntimeError, TimeoutError) as error:
        print(f"real-cluster: {error}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    if args.verb == "where":
        print(directory())
    elif args.verb == "build":
        return _build(args)
    elif args.verb == "can-run-a-node":
        print(node_missing())
    elif args.verb == "image":
        add_image(args.dir.resolve(), args.name, args.program, args.path)
    elif args.verb == "down":
        stop_node(args.dir.resolve())
        stop(args.dir.resolve())
    else:
        plane = Plane(args.dir.resolve(), build(), args.port, args.scheduler_qps, args.audit)
        try:
            start(plane)
            if args.crds or args.operator:
                apply_crds(plane)
            start_controllers(plane)
            for part in PARTS:
                if getattr(args, part):
                    PARTS[part](plane)
            print(plane.kubeconfig)
        except BaseException:
            stop_node(plane.dir)
            stop(plane.dir)  # half a control plane helps nobody
            raise
    return 0


def node_missing() -> str:
    """What a real node lacks here; "" where one can be started."""
    try:
        require_node(directory())
    except Missing as error:
        return str(error)
    return ""


def _build(args: argparse.Namespace) -> int:
    try:
        print(build(args.within, kwok=args.kwok, extras=True))
    except Missing as error:
        if not args.or_say:
            raise
        print(f"real-cluster: not built ({error}): tests against a real API server will be skipped", file=sys.stderr)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="real_cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("build")
    made.add_argument(
        "--within", type=float, default=None, metavar="SECONDS", help="give up then; no limit unless said"
    )
    made.add_argument("--kwok", action="store_true", help="kwok too, for benchmarks with pretend nodes")
    made.add_argument("--or-say", action="store_true", help="what this machine lacks is a sentence, not a failure")
    verbs.add_parser("where")
    verbs.add_parser("can-run-a-node")
    up = verbs.add_parser("up")
    up.add_argument("dir", type=Path)
    up.add_argument("--port", type=int, default=0, help="first of ten ports; 0 = find free ones")
    up.add_argument("--crds", action="store_true", help="the training operator's kinds, without the operator")
    up.add_argument("--operator", action="store_true", help="Kubeflow's training operator with its CRDs and webhooks")
    up.add_argument("--scheduler", action="store_true", help="kube-scheduler")
    up.add_argument("--scheduler-qps", type=int, default=0, help="requests a second of its client; 0 = its default, 50")
    up.add_argument("--audit", action="store_true", help="write every request to DIR/audit.jsonl")
    up.add_argument("--kubelet", action="store_true", help="one real node (root, containerd, runc)")
    image = verbs.add_parser("image")
    image.add_argument("dir", type=Path)
    image.add_argument("name")
    image.add_argument("--path", default=os.defpath, help="the PATH of its programs")
    image.add_argument("program", nargs="+")
    verbs.add_parser("down").add_argument("dir", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
