"""The files in deploy/: units, manifests and settings are valid, and each command in them can start as written."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from nngkit.cli.commands import DAEMONS
from nngkit.telemetry.declared import declared
from tests.cli.commands import ROOT, discoverd, nngkit
from tests.telemetry.test_declared import stats_classes

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
EXAMPLES = DEPLOY / "systemd" / "examples"
PROGRAM = "/opt/nngkit/bin/nngkit"
EXPOSURE = 20  # tenths, of 100: systemd's word for under 20 is "OK"
PROMETHEUS = DEPLOY / "prometheus"
systemd = pytest.mark.needs_program("systemd-analyze", package="systemd")
promtools = pytest.mark.needs_program("promtool", package="prometheus")


def command_of(unit: Path) -> list[str]:
    """Return the arguments of nngkit in a unit."""
    (line,) = re.findall(rf"^ExecStart={PROGRAM} (.*)$", unit.read_text(), re.MULTILINE)
    return shlex.split(line)


def settings_of(unit: Path) -> Path:
    """Return the example of a unit's file of settings."""
    name = Path(command_of(unit)[-1]).name.replace("%i", "*")
    (found,) = EXAMPLES.glob(name)
    return found


def checked(*arguments: str) -> None:
    done = nngkit(*arguments, "--check")
    assert done.returncode == 0, done.stderr


def analyzed(folder: Path, *arguments: str) -> None:
    """Run systemd-analyze on the units in `folder`."""
    done = subprocess.run(
        ["systemd-analyze", *arguments],
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{folder}:"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    told = [line for line in done.stderr.splitlines() if "nngkit" in line]
    assert (done.returncode, told) == (0, []), done.stdout + done.stderr


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the units, with a program that is there."""
    folder = tmp_path_factory.mktemp("units")
    shutil.copytree(DEPLOY / "systemd", folder, dirs_exist_ok=True)
    for unit in folder.glob("*.service"):
        unit.write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    return folder


def test_each_daemon_has_a_unit_and_each_unit_its_settings() -> None:
    commands = {" ".join(command_of(unit)[: command_of(unit).index("--config")]) for unit in UNITS}
    assert commands == set(DAEMONS)
    assert {settings_of(unit) for unit in UNITS} == set(EXAMPLES.iterdir())


@systemd
def test_the_units_are_valid_and_confined(units: Path) -> None:
    names = [unit.name.replace("@.", "@example.") for unit in UNITS]
    analyzed(units, "verify", "--man=no", *(str(units / name) for name in names))
    analyzed(units, "security", "--offline=true", f"--threshold={EXPOSURE}", *names)


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_settings_of_a_unit_are_valid(unit: Path, tmp_path: Path) -> None:
    command = command_of(unit)[:-2]
    path = settings_of(unit)
    if "realm" in path.read_text():
        assert nngkit("trust", "new", "farm", "--realm", str(tmp_path)).returncode == 0
        command += ["--realm", str(tmp_path)]
    checked(*command, "--config", str(path))


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


def expressions() -> list[str]:
    """Return what the dashboard asks Prometheus for, with values for its variables."""
    board = json.loads((DEPLOY / "grafana" / "nngkit.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [each.replace("$__rate_interval", "1m").replace("$job", "nngkit") for each in found]


@pytest.mark.slow
@promtools
def test_each_alert_fires_and_stays_quiet() -> None:
    rules = PROMETHEUS / "nngkit.rules.yml"
    promtool("check", "config", PROMETHEUS / "prometheus.yml")
    promtool("check", "config", DEPLOY / "processes" / "prometheus.yml")
    promtool("check", "rules", "--lint=all", "--lint-fatal", rules)
    promtool("test", "rules", ROOT / "tests" / "alerts.yml")
    names = {each["alert"] for group in yaml.safe_load(rules.read_text())["groups"] for each in group["rules"]}
    assert set(re.findall(r'alertname="(\w+)"', (ROOT / "tests" / "alerts.yml").read_text())) == names


@promtools
def test_the_expressions_of_the_dashboard_can_be_asked(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(expressions())]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


def test_the_metrics_of_alerts_and_dashboard_exist() -> None:
    known = {metric.name for kind in stats_classes() for metric in declared(kind).metrics}
    text = (PROMETHEUS / "nngkit.rules.yml").read_text() + "\n".join(expressions())
    named = set(re.findall(r"\bnngkit_\w+", text))
    assert named
    assert {re.sub("_bucket$", "", name) for name in named} <= known


def manifests() -> Iterator[dict[str, Any]]:
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def containers() -> dict[str, dict[str, Any]]:
    return {
        container["name"]: container
        for each in manifests()
        if each["kind"] in ("Deployment", "StatefulSet")
        for container in each["spec"]["template"]["spec"]["containers"]
    }


def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    for each in manifests():
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_the_commands_of_the_manifests_can_start(tmp_path: Path) -> None:
    for each in manifests():
        for name, text in each.get("data", {}).items():
            (tmp_path / name).write_text(text)
    for container in containers().values():
        checked(*(argument.replace("/etc/nngkit", str(tmp_path)) for argument in container["args"]))


def compose() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    return found


def test_the_commands_of_compose_can_start() -> None:
    ours = [service for service in compose().values() if service["image"] == "nngkit"]
    assert len(ours) == 5
    for service in ours:
        done = nngkit(*service["command"], "--check", **service["environment"])
        assert done.returncode == 0, done.stderr
        assert not set(service.get("depends_on", ())) - set(compose())


def test_what_compose_mounts_is_there_and_prometheus_scrapes_each_of_ours() -> None:
    folder = DEPLOY / "compose"
    for name in ("prometheus", "grafana"):
        for volume in compose()[name]["volumes"]:
            assert (folder / volume.partition(":")[0]).is_file()
    (job,) = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    ours = {name: service for name, service in compose().items() if service["image"] == "nngkit"}
    assert set(found["names"]) == set(ours)
    assert all(f"0.0.0.0:{found['port']}" in service["command"] for service in ours.values())
    (source,) = yaml.safe_load((folder / "grafana" / "datasource.yml").read_text())["datasources"]
    assert source["url"].rpartition("/")[2].partition(":")[0] in compose()
    assert yaml.safe_load((folder / "grafana" / "dashboards.yml").read_text())["providers"]


@pytest.mark.slow
def test_a_healthy_daemon_passes_its_probes_and_a_dead_one_fails() -> None:
    probes = [containers()["discoverd"][probe]["exec"]["command"] for probe in ("readinessProbe", "livenessProbe")]
    probes.append(compose()["discovery-1"]["healthcheck"]["test"][1:])
    (probe,) = {tuple(each) for each in probes}
    assert probe[0] == "nngkit"
    with discoverd() as daemon:
        here = [argument.replace("tcp://127.0.0.1:5556", daemon.answers) for argument in probe[1:]]
        assert nngkit(*here).returncode == 0
    assert nngkit(*here).returncode != 0
