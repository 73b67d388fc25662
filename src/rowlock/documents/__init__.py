"""Documents that people send, read without trust: YAML, for the Kubernetes API and for manifests of workloads.

Stands among the words: may import these alone. Begin with `yaml_reader.py`.
"""
