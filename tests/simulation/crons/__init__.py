"""Worlds whose users make CronJobs: starts come while servers die, views lag, and Jobs are deleted."""
