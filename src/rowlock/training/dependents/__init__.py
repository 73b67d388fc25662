"""What a job owns: pods, headless Services, the PodGroup (the gang, declared before its pods), the autoscaler.

Begin with `pods.py` and `pod_group.py`.
"""
