"""What each framework adds to the pods of a TrainJob: variables, ports, volumes. One file a framework.

`make_plan` chooses one by the runtime's `mlPolicy`, which has at most one framework.
"""
