"""The two programs against a server in a thread, as the tests of the REST API have it."""

from tests.rest.conftest import served as served
