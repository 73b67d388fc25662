"""The flags of `runai submit`, `runai submit-dist FRAMEWORK` and of the older `submit-pytorch` and its like.

They are rows of `rowlock.submit_fields`. A flag that rowlock does not support is refused with the reason given there;
none is ignored.
"""

from __future__ import annotations

from rowlock.cli.submit.flags import submit_flags

PYTORCH = submit_flags(1, "PyTorch")
TF = submit_flags(1, "TF")
XGBOOST = submit_flags(1, "XGBoost")
MPI = submit_flags(1, "MPI")
STANDARD = submit_flags(1, "Standard")
