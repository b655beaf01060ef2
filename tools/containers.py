"""Run the image and the manifests of deploy/ with podman: `python -m tools.containers`, as root.

Builds the image, starts a pod for each replica of the manifests, runs their probes, calls the service, has a probe find
a provider that hangs, and stops each container. It prints what it saw, and ends with an error at the first thing that
is wrong. Podman knows neither StatefulSets nor names below a headless service nor the name of a node: the pods are
named as a StatefulSet does it, the services dial them by that name, and the variable with the node's name is left out.
"""

from __future__ import annotations

import copy
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
NETWORK = "nngkit-manifests"
IMAGE = "localhost/nngkit:latest"
LIMIT = 600.0  # seconds for one command: the image's packages are downloaded
WAIT = 60.0  # seconds until all providers are up


def podman(*words: str, given: str | None = None, fails: bool = False) -> str:
    """Run podman; return its output. Raises RuntimeError if it fails, or if it should and does not."""
    done = subprocess.run(
        ["podman", *words], input=given, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT, check=False
    )
    if bool(done.returncode) != fails:
        raise RuntimeError(f"podman {' '.join(words)}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def manifests() -> list[dict[str, Any]]:
    return [each for path in sorted((ROOT / "deploy/kubernetes").glob("*.yaml")) for each in _read(path.read_text())]


def _read(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text.replace(".nngkit-discovery:", ":")))


def pods() -> list[dict[str, Any]]:
    """Return the pods that a cluster makes of the manifests."""
    found = []
    for each in manifests():
        if each["kind"] not in ("Deployment", "StatefulSet"):
            continue
        for number in range(each["spec"]["replicas"]):
            template = copy.deepcopy(each["spec"]["template"])
            for container in template["spec"]["containers"]:
                del container["ports"]  # they would be published on this machine
                container.pop("env", None)
                container |= {"image": IMAGE, "imagePullPolicy": "Never"}
            template["metadata"]["name"] = template["spec"]["hostname"] = f"{each['metadata']['name']}-{number}"
            found.append({"apiVersion": "v1", "kind": "Pod", **template})
    return found


def containers() -> list[str]:
    return [f"{pod['metadata']['name']}-{each['name']}" for pod in pods() for each in pod["spec"]["containers"]]


def check() -> None:
    daemon = next(each for each in containers() if each.endswith("-discoverd"))
    services = [each for each in containers() if each.endswith("-shout")]
    limit = time.monotonic() + WAIT
    while (listed := podman("exec", daemon, "nngkit", "discover")).count(" up ") < len(services):
        if time.monotonic() > limit:
            raise RuntimeError(f"providers are missing after {WAIT} s: {listed}")
        time.sleep(0.5)
    print(listed, end="")
    print("call:", podman("exec", daemon, "nngkit", "call", "shout", "-D", "hello").strip())
    for each in containers():
        podman("healthcheck", "run", each)
        podman("exec", each, "touch", "/opt/nngkit/x", fails=True)
        print(f"{each}: healthy; {podman('exec', each, 'id').strip()}")
    podman("kill", "--signal=STOP", services[0])
    podman("healthcheck", "run", services[0], fails=True)
    podman("kill", "--signal=CONT", services[0])
    print(f"{services[0]}: unhealthy while it hangs")
    for each in reversed(containers()):
        start = time.monotonic()
        podman("stop", each)
        code = podman("inspect", "--format={{.State.ExitCode}}", each).strip()
        print(f"{each}: ended with {code} after {time.monotonic() - start:.1f} s")
        if code != "143":
            raise RuntimeError(podman("logs", each))


def main() -> None:
    podman("build", "--network=host", "--file=deploy/docker/Dockerfile", f"--tag={IMAGE}", ".")
    made = yaml.safe_dump_all([*(each for each in manifests() if each["kind"] == "ConfigMap"), *pods()])
    podman("network", "create", NETWORK)
    try:
        podman("kube", "play", f"--network={NETWORK}", "-", given=made)
        check()
    finally:
        for pod in pods():
            podman("pod", "rm", "--force", "--ignore", pod["metadata"]["name"])
        podman(
            "volume",
            "rm",
            "--force",
            *(each["metadata"]["name"] for each in manifests() if each["kind"] == "ConfigMap"),
        )
        podman("network", "rm", NETWORK)


if __name__ == "__main__":
    main()
