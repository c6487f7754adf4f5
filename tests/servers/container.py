"""Services in private containers of a running Docker engine: official images, ports on loopback only."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from tests.servers.process import LOOPBACK, Command

LABEL = "jobcontract.tests"

IMAGES: Mapping[str, str] = {
    "postgres": "postgres:17",
    "redis": "redis:8",
    "rabbitmq": "rabbitmq:4-management",
}
"""PgBouncer has no official image."""


@functools.cache
def _engine() -> str | None:
    docker = shutil.which("docker")
    if docker is None:
        return None
    try:
        answer = subprocess.run(
            [docker, "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            timeout=20,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return docker if answer.returncode == 0 and answer.stdout.strip() else None


@functools.cache
def available_image(service: str) -> str | None:
    """The image that runs `service`, pulled if need be (blocks for that); None without an engine or image."""
    docker, image = _engine(), IMAGES.get(service)
    if docker is None or image is None:
        return None
    for attempt in (["image", "inspect", image], ["pull", "--quiet", image]):
        if subprocess.run([docker, *attempt], capture_output=True, timeout=600, check=False).returncode == 0:
            return image
    return None


def run_command(
    image: str,
    *arguments: str,
    publish: Mapping[int, int],
    data: str,
    environment: Mapping[str, str],
    name: str,
    options: Sequence[str] = (),
) -> Command:
    """Run `image` in the foreground, with its port published on 127.0.0.1.

    Args:
        arguments: what the image's entry point is given.
        publish: ports of 127.0.0.1 -> ports inside.
        data: the folder inside whose content must outlive the container; it becomes a volume.
        name: of the container and of the volume, unique to one server (see `new_name`).
    """
    docker = _engine() or "docker"
    settings = [word for key, value in environment.items() for word in ("--env", f"{key}={value}")]
    ports = [
        word for here, inside in publish.items() for word in ("--publish", f"{LOOPBACK}:{here}:{inside}")
    ]
    return Command(
        [
            docker, "run", "--rm", "--name", name, "--label", LABEL,
            "--volume", f"{name}:{data}", *ports, *settings, *options, image, *arguments,
        ],
        environment=dict(os.environ),
        kill=[docker, "kill", name],
        pause=[docker, "pause", name],
        resume=[docker, "unpause", name],
        afterwards=[docker, "rm", "--force", name],
        dispose=[docker, "volume", "rm", "--force", name],
    )  # fmt: skip


def execute(name: str, *argv: str) -> str:
    """Run a program inside a container and return what it wrote.

    Raises:
        RuntimeError: it failed; the message ends with what it wrote.
    """
    result = subprocess.run(
        [_engine() or "docker", "exec", name, *argv], capture_output=True, text=True, timeout=120, check=False
    )
    if result.returncode != 0:
        raise RuntimeError(
            f"{argv[0]} ended with status {result.returncode}:\n{result.stdout}{result.stderr}"
        )
    return result.stdout


def new_name(service: str) -> str:
    """A name that no other container has."""
    return f"jobcontract-{service}-{secrets.token_hex(8)}"
