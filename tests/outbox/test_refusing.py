"""What a relay, or a configuration, is refused for: one sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobcontract import ConfigError, Job, StoreError, get_backend
from jobcontract.config import load_settings
from tests.outbox.conftest import MakeStage
from tests.outbox.stage import Stage


def relayed(stage: Stage, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of `jobctl relay`."""
    with stage.process("relay", *arguments) as process:
        _, error = process.communicate()
        return process.returncode, error


def test_a_relay_refuses_a_database_without_an_outbox(
    make_stage: MakeStage, host_url: str, redis_url: str
) -> None:
    stage = make_stage(host_url, install=False, redis=redis_url)
    stage.backend("host").install()
    for arguments in ([], ["--once"], ["--check"]):
        code, error = relayed(stage, *arguments)
        assert code == 1
        assert error.endswith("Error: the backend 'host' holds no outbox yet; run `jobctl init --all`\n")
    with pytest.raises(StoreError, match="holds no outbox yet; run `jobctl init --all`"):
        stage.backend().register(Job(kind="work"))


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (-1, "version -1 of the outbox, and this jobcontract needs 1; run `jobctl init --all`"),
        (9, "version 9 of the outbox, and this jobcontract knows 1; upgrade jobcontract"),
    ],
    ids=["older", "newer"],
)
def test_a_relay_refuses_another_version_of_the_outbox(stage: Stage, version: int, sentence: str) -> None:
    stage.sql(f"UPDATE {{outbox_schema}} SET version = {version}")
    code, error = relayed(stage, "--once")
    assert code == 1
    assert f"the backend 'host' has {sentence}" in error
    with pytest.raises(StoreError, match="of the outbox"):
        stage.backend().register(Job(kind="work"))


def test_a_relay_refuses_a_target_that_is_not_initialised(
    make_stage: MakeStage, postgres_url: str, redis_url: str, rabbit_url: str
) -> None:
    stage = make_stage(postgres_url, redis=redis_url)
    stage.file.write_text(stage.file.read_text().replace(redis_url, f"{redis_url}x"))
    code, error = relayed(stage)
    assert code == 1
    assert error.count("\n") == 1
    assert "has no namespace" in error
    assert "run `jobctl init`" in error

    stage.file.write_text(stage.file.read_text().replace(f"{redis_url}x", rabbit_url))
    code, error = relayed(stage)
    assert code == 1
    assert error.startswith("Error: the target 'redis' is not initialised: it lacks ")
    assert error.endswith("run `jobctl init --backend redis`\n")


def test_a_target_that_stops_being_initialised_costs_no_attempt(stage: Stage, redis_url: str) -> None:
    stage.backend().register(Job(kind="work"))
    stage.file.write_text(stage.file.read_text().replace(redis_url, f"{redis_url}x"))
    with pytest.raises(StoreError, match="has no namespace"):
        stage.publish()
    assert stage.sql("SELECT attempts FROM {outbox}") == [(0,)]


@pytest.mark.parametrize(
    ("outbox", "sentence"),
    [
        ("nowhere", "backends.redis.outbox: there is no backend 'nowhere'"),
        ("redis", "backends.redis.outbox: a backend can't be its own outbox"),
        ("other", "backends.redis.outbox: the store of 'other' can't hold an outbox"),
        ("memory", "backends.redis.outbox: the store of 'memory' can't hold an outbox"),
        ("chained", "backends.redis.outbox: 'chained' has an outbox itself"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(tmp_path: Path, outbox: str, sentence: str) -> None:
    file = tmp_path / "jobcontract.toml"
    file.write_text(
        f'[backends.redis]\nurl = "redis://localhost"\noutbox = "{outbox}"\n'
        '[backends.other]\nurl = "redis://localhost"\n'
        '[backends.memory]\nurl = "sqlite://"\n'
        '[backends.chained]\nurl = "redis://localhost"\noutbox = "memory"\n'
    )
    with pytest.raises(ConfigError) as caught:
        get_backend("redis", settings=load_settings(file, environment={}))
    assert str(caught.value).startswith(sentence)


def test_a_relay_without_an_outbox_in_the_configuration_says_so(stage: Stage) -> None:
    code, error = relayed(stage, "--target", "host")
    assert (code, error) == (
        2,
        "Error: the backend 'host' has no outbox; set outbox = \"...\" in [backends.host]\n",
    )


def test_initialising_can_be_repeated_and_looked_at_before(
    make_stage: MakeStage, host_url: str, redis_url: str
) -> None:
    stage = make_stage(host_url, install=False, redis=redis_url)
    planned = [step.title for step in stage.backend().install(dry_run=True)]
    assert "outbox 001 outbox" in planned
    done = stage.backend().install()
    assert [step.title for step in done] == planned
    script = next(step.statements for step in done if step.title == "outbox 001 outbox")
    assert "CREATE TABLE" in script
    assert stage.backend().install() == []
