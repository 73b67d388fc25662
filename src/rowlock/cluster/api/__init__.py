"""The Kubernetes API over HTTPS, from the table of types to the bytes on the wire: the embedded cluster's kube-apiserver."""
