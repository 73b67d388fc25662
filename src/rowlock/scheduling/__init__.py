"""Deciding: which gang runs where, who yields, and a sentence for everybody who waits. Pure; knows pods, gangs, queues and nodes, not jobs."""
