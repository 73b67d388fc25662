"""Controllers at work: `run` looks, lets them decide, and writes what they decided.

`loop.py` has the queues and turns, `writing.py` what goes together, `recorder.py` the Events.
"""

from rowlock.controllers.loop import run
from rowlock.controllers.recorder import Allowance

__all__ = ["Allowance", "run"]
