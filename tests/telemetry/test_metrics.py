"""Objects of rooms as Prometheus's text: read by its own parser, at real sockets."""

import gc
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import trio
from opentelemetry.metrics import CallbackOptions
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from nngkit import Client, Server
from nngkit.discovery.daemon import Daemon
from nngkit.discovery.settings import DaemonSettings
from nngkit.errors import ConfigError
from nngkit.histogram import BOUNDS, Histogram
from nngkit.instruments import Gauge, Instrument, Total
from nngkit.protocols import Pull, Push, pool
from nngkit.telemetry import Metrics


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def key(metric: str, /, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return metric, frozenset(labels.items())


async def test_calls_are_counted_by_service_and_their_times_are_in_buckets() -> None:
    async def double(body: bytes) -> bytes:
        return body * 2

    settings = DaemonSettings(listen=("tcp://127.0.0.1:0",), query=("tcp://127.0.0.1:0",))
    metrics = Metrics()
    async with Daemon(settings) as daemon, Server("twice", double, discovery=daemon.addresses) as server:
        metrics.watch(daemon)
        metrics.watch(server)
        async with Client("twice", daemons=daemon.query_addresses) as client:
            metrics.watch(client)
            await client.wait_for_providers(1, 10)
            for _ in range(3):
                assert await client.request(b"ab", timeout=10) == b"abab"
            found = await trio.to_thread.run_sync(samples, metrics)  # a program's thread for Prometheus may read them
            assert found[key("nngkit_calls_server_requests_total", name="twice")] == 3
            assert found[key("nngkit_calls_client_requests_total", name="twice")] == 3
            provider = {"name": "twice", "provider": server.address}
            assert found[key("nngkit_calls_provider_outcomes_total", outcome="reply", **provider)] == 3
            assert found[key("nngkit_calls_provider_times_seconds_bucket", le="+Inf", **provider)] == 3
            assert found[key("nngkit_calls_server_times_seconds_count", name="twice")] == 3
            assert found[key("nngkit_protocols_received_total", name="twice", owner="calls_server_socket")] == 3
            surveys = "discovery_daemon_discovery"
            assert found[key("nngkit_discovery_up", service="twice", owner=surveys)] == 1
            assert found[key("nngkit_discovery_providers", state="up", owner=surveys)] == 1
        assert not [name for name, _ in samples(metrics) if name.startswith("nngkit_calls_client")]  # it is closed
        assert key("nngkit_calls_server_requests_total", name="twice") in samples(metrics)


def test_a_socket_is_forgotten_when_it_is_closed() -> None:
    metrics = Metrics()
    with Push(listen="tcp://127.0.0.1:0", name="out") as push:
        pull = Pull(dial=push.address, name="in")
        metrics.watch(push)
        metrics.watch(pull)
        push.send(b"x", timeout=10)
        assert pull.recv(timeout=10) == b"x"
        found = samples(metrics)
        assert found[key("nngkit_protocols_sent_total", name="out")] == 1
        assert found[key("nngkit_protocols_received_total", name="in")] == 1
        pull.close()
        names = {labels for _, labels in samples(metrics)}
        assert frozenset({("name", "out")}) in names
        assert frozenset({("name", "in")}) not in names
    assert not [name for name, _ in samples(metrics) if name.startswith("nngkit")]


def test_a_block_ends_the_watching() -> None:
    metrics = Metrics()
    with metrics.watch(pool):
        assert key("nngkit_protocols_pool_members") in samples(metrics)
    assert not metrics.families()


@dataclass
class KeptStats:
    kept: Gauge
    """Values kept."""
    lost: Total
    """Values lost."""
    by_place: Annotated[Mapping[str, int], Instrument("counter", label="place")]
    """Values by place."""


class Keeper:
    def __init__(self, **places: int) -> None:
        self.places = places

    @property
    def stats(self) -> KeptStats:
        if "broken" in self.places:
            raise RuntimeError("no stats today")
        return KeptStats(len(self.places), 1, self.places)


def test_an_object_is_forgotten_when_nothing_else_refers_to_it() -> None:
    metrics, keeper = Metrics(), Keeper(a=1)
    metrics.watch(keeper)
    assert metrics.families()
    del keeper
    gc.collect()
    assert not metrics.families()


def test_equal_labels_are_added_up_and_labels_are_bounded() -> None:
    metrics = Metrics(most=3)
    first, second = Keeper(a=1, b=2), Keeper(b=3, c=4, d=5, e=6)
    for each in (first, second):
        metrics.watch(each)
    (total,) = [each for name, each in metrics.families().items() if name.endswith("by_place_total")]
    assert total.samples == {
        (("place", "a"),): 1,
        (("place", "b"),): 5,
        (("place", "c"),): 4,
        (("place", "(other)"),): 11,
    }


def test_one_object_without_stats_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    well, broken = Keeper(a=1), Keeper(broken=1)
    for each in (well, broken):
        metrics.watch(each, "k")
    for _ in range(3):
        assert any(name.endswith("_kept") for name in metrics.families())
    assert len(caplog.records) == 1  # at most one line a minute
    with pytest.raises(ConfigError, match="a int has no stats"):
        metrics.watch(1)  # type: ignore[arg-type]


def test_it_is_a_collector_of_the_programs_own_registry() -> None:
    registry = CollectorRegistry()
    metrics, keeper = Metrics(), Keeper(a=1)
    metrics.watch(keeper, "k")
    registry.register(metrics)
    (name,) = [each.name for each in registry.collect() if each.name.endswith("_lost")]
    assert registry.get_sample_value(f"{name}_total", {"name": "k"}) == 1


def test_text_of_an_age_is_made_once() -> None:
    metrics, keeper = Metrics(), Keeper(a=1)
    metrics.watch(keeper, "k")
    first = metrics.text()
    keeper.places["b"] = 1
    assert metrics.text(age=60) is first
    assert b'place="b"' in metrics.text()
    other = Keeper(c=1)
    metrics.watch(other, "o")
    assert b'name="o"' in metrics.text(age=60), "an object that came since is in it"


class Meter:
    """Meter that keeps what is asked of it. An exporter reads the callbacks."""

    def __init__(self) -> None:
        self.made: dict[str, tuple[str, Any]] = {}

    def create_observable_counter(self, name: str, callbacks: list[Any], unit: str, description: str) -> None:
        assert name not in self.made
        self.made[name] = unit, callbacks[0]

    create_observable_gauge = create_observable_counter


def test_a_meter_gets_observable_instruments_of_each_metric() -> None:
    meter, metrics, keeper = Meter(), Metrics(), Keeper(a=1)
    metrics.watch(keeper, "k")
    add = metrics.observe(meter)
    metrics.watch(pool)
    add()
    (name,) = [each for each in meter.made if each.endswith("_by_place")]
    unit, read = meter.made[name]
    assert unit == "1"
    ((observed),) = read(CallbackOptions())
    assert (observed.value, observed.attributes) == (1, {"name": "k", "place": "a"})
    assert "nngkit_protocols_pool_members" in meter.made


def test_a_distribution_counts_what_is_up_to_each_bound() -> None:
    histogram = Histogram()
    histogram.add_many([0.0003, 0.002, 0.002, 100.0])
    found = histogram.distribution()
    assert (found.count, round(found.total, 4)) == (4, 100.0043)
    by_bound = dict(zip(BOUNDS, found.counts, strict=True))
    assert [by_bound[bound] for bound in (1e-4, 5e-4, 1e-3, 5e-3, BOUNDS[-1])] == [0, 1, 1, 3, 3]


OFF = """
import json, sys, trio
from nngkit import Client, Server
async def handler(body):
    return body
async def main():
    async with Server("a", handler, listen="tcp://127.0.0.1:0", discovery=()) as server:
        server.stats
trio.run(main)
print(json.dumps([name for name in sys.modules if name.split(".")[0] in ("prometheus_client", "opentelemetry")
                  or name.startswith("nngkit.telemetry")]))
"""


def test_nothing_of_it_is_loaded_while_it_is_off() -> None:
    ran = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(ran.stdout) == []


async def test_the_stats_of_a_node_have_those_of_its_parts() -> None:
    from nngkit.cluster import Host

    metrics = Metrics()
    async with Host("render", listen="tcp://127.0.0.1:0", token="t") as host:
        metrics.watch(host)
        with trio.fail_after(10):
            await host.joined()
        found = samples(metrics)
        assert found[key("nngkit_cluster_endpoint_leading", name="host")] == 1
        assert found[key("nngkit_cluster_election_elected_total", name="host", owner="cluster_endpoint_election")] == 1
        assert key("nngkit_cluster_work_accepted_total", name="host", owner="cluster_endpoint_work") in found
    assert not metrics.families()
