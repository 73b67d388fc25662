"""Stores to test the collectors on."""

from tests.storage.conftest import clock as clock
from tests.storage.conftest import path as path
