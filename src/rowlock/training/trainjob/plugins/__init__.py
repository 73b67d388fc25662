"""What each framework adds to the pods of a TrainJob: variables, ports, volumes. One file a framework.

`apply_policy` picks by the runtime's `mlPolicy`; a runtime has one framework at most.
"""
