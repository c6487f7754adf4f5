"""A relay with the rights of a role."""

from __future__ import annotations

from pathlib import Path

from jobcontract_outbox import Relay, RelayOptions
from jobcontract_outbox.ends import find_ends

from jobcontract import Job, get_backend
from jobcontract.config import Settings, load_settings


def relays(folder: Path, owner: str, relay: str) -> None:
    """A relay that connects to the target by the URL `relay` publishes there; `owner` may install."""

    def settings(url: str) -> Settings:
        file = folder / "jobcontract.toml"
        file.write_text(
            f'[backends.host]\nurl = "sqlite:///{folder}/host.db"\n'
            f'[backends.it]\nurl = "{url}"\noutbox = "host"\n'
        )
        return load_settings(file, environment={})

    with get_backend("it", settings=settings(owner)) as backend:
        backend.install()
        backend.register_many([Job(kind="k", idempotency_key=f"{number}") for number in range(20)])
    running = Relay(find_ends(settings(relay)), RelayOptions())
    running.check()
    running.run_once()
    assert running.loops[0].published == 20
    running.close()
