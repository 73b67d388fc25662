"""Worlds whose users make Jobs, JobSets and TrainJobs: each layer's controller sees only the status of the next."""
