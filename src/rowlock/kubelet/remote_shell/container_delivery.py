"""How an MPIJob's launcher that runs in a container gets its `kubectl`: the init container writes it, with the launcher's own Python."""

from pathlib import Path

_INSTALL = """
import os, sys
place = os.path.join(os.environ.get("TARGET_DIR", "/opt/kube"), "kubectl")
with open(place, "w") as file:
    file.write("#!" + sys.executable + "\\n" + sys.argv[1])
os.chmod(place, 0o755)
print(place + " stands for kubectl")
"""


def install_command() -> tuple[str, ...]:
    """The init container's command."""
    program = Path(__file__).with_name("contained_kubectl.py").read_text(encoding="utf-8")
    return ("python3", "-c", _INSTALL, program)
