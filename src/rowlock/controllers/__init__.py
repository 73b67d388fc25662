"""Controllers at work, as in controller-runtime: a loop looks, lets each controller decide, and writes what it decided.

May import: the words. Begin with `loop.py`, then `writer.py` and `recorder.py`.
"""

from rowlock.controllers.loop import run
from rowlock.controllers.recorder import Allowance

__all__ = ["Allowance", "run"]
