"""What is, and what happened: objects in memory, a journal on disk, watches. The embedded cluster's etcd."""
