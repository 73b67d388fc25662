#!/bin/bash
# Runs the tests of control groups on version 2, whichever version this machine has: in a user-mode Linux kernel, which is a process
# (`apt-get install user-mode-linux`). Its root is this machine's; /tmp, /run and /sys/fs/cgroup are its own.
#
# The one test that compares times of processors is left out: this kernel does not know how long its own process waited for one.
#
#   scripts/cgroup2.sh [TEST…]
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != --inside ]; then
    kernel=$(command -v linux.uml) || { echo "linux.uml is not installed: apt-get install user-mode-linux"; exit 1; }
    [ "$(id -u)" = 0 ] || { echo "it needs root: its programs have the files of this user"; exit 1; }
    notes=$(mktemp -d); trap 'rm -r "$notes"' EXIT
    [ $# -gt 0 ] || set -- tests/kubelet/shim/test_cgroups.py tests/kubelet/shim/test_cgroup_view.py
    printf '#!/bin/bash\nexec %q --inside %q %s\n' "$PWD/scripts/cgroup2.sh" "$notes" "$(printf '%q ' "$@")" >"$notes/init"
    chmod +x "$notes/init"
    UML_DIR="$notes" timeout 600 "$kernel" mem=1500M root=/dev/root rootfstype=hostfs rootflags=/ rw "init=$notes/init" \
        con=null con0=null,fd:1 </dev/null | sed -n '/as init process/,$p'
    exit "$(cat "$notes/code" 2>/dev/null || echo 1)"
fi
notes=$2; shift 2
export PATH=$PWD/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
ip link set lo up
code=0
.venv/bin/python -m pytest -rs --color=no -k "not a_cpu_limit_holds_back" -p no:cacheprovider --basetemp=/var/tmp/tests "$@" || code=$?
echo $code >"$notes/code"
/sbin/halt -f
