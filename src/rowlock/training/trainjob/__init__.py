"""Kubeflow Trainer: a TrainJob and its runtime become a JobSet, and the JobSet's status the TrainJob's. Pure.

Begin with `jobset.py`, which builds the set; `plugins/` has what each framework adds to it, `status.py` the status's way back,
`admission.py` the checks of a new one.
"""
