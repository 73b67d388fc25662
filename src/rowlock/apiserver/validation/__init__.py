"""The rules of k8s.io/kubernetes/pkg/apis/*/validation, one file a part, and the warnings of pkg/api/*/warnings.

Pure; may import `schema`. Errors are `field.Error`s (`field_errors.py`). Begin with `objects.py`, then `pods.py`.
"""
