"""For training programs: checkpoints from which a run goes on bit by bit as if it had never stopped, and progress that others can read.

    from rowlock.runtime import Checkpoint, ResumableSampler, progress

May import: the standard library, and torch when the caller passes torch objects. Begin with `checkpoint.py`; `rowlock verify-resume`
tests that resumes are exact (`recording.py`).
"""

from rowlock.runtime.checkpoint import Checkpoint
from rowlock.runtime.progress_lines import progress
from rowlock.runtime.sampler import ResumableSampler

__all__ = ["Checkpoint", "ResumableSampler", "progress"]
