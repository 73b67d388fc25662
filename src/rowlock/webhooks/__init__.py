"""Webhooks of JobSet and Kubeflow Trainer, as the API server calls them: what they fill in, what they refuse, and in which words.

What they decide is in `training/admission`; here it becomes answers. May import `apiserver` and what it may. Begin with `trainer_webhooks.py`.
"""
