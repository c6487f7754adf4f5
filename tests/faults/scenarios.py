"""Which stores are attacked, and how; and the red controls: products with a fault that has to be seen."""

from __future__ import annotations

from tests.faults.laboratory import Scenario
from tests.faults.stages import (
    OutboxRabbitStage,
    OutboxRedisStage,
    PostgresStage,
    RabbitStage,
    RedisStage,
    SQLiteStage,
)

PROCESSES = ("kill a worker", "stop a worker", "freeze a worker")
SERVER = ("kill the server", "restart the server", "freeze the server", "throw out the clients")
NETWORK = ("reset connections", "silence", "slowness", "lost requests", "orphaned requests", "lost replies")
EVERYTHING = (*PROCESSES, *SERVER, *NETWORK)

RELAY = ("kill the relay", "freeze the relay", "kill the relay")

ATTACKS = (
    Scenario(name="postgres", stage=PostgresStage, faults=EVERYTHING),
    Scenario(name="sqlite", stage=SQLiteStage, faults=(*PROCESSES, "hold the write lock")),
    Scenario(name="redis", stage=RedisStage, faults=EVERYTHING),
    Scenario(name="rabbitmq", stage=RabbitStage, faults=EVERYTHING),
    Scenario(name="outbox-redis", stage=OutboxRedisStage, faults=(*EVERYTHING, *RELAY)),
    Scenario(name="outbox-rabbitmq", stage=OutboxRabbitStage, faults=(*EVERYTHING, *RELAY)),
)

RED_CONTROLS = (
    Scenario(
        name="red-relays-by-cursor",
        stage=OutboxRedisStage,
        faults=(),
        jobs=400,
        odd=False,
        drained_within=15.0,
        bad="relays by cursor",
        must_break=frozenset({8}),
    ),
    Scenario(
        name="red-retries-in-the-client",
        stage=RedisStage,
        faults=("lost replies",),
        rounds=4,
        jobs=400,
        bad="retries in the client",
        must_break=frozenset({3}),
    ),
    Scenario(
        name="red-fails-by-id",
        stage=PostgresStage,
        faults=("freeze a worker",),
        rounds=4,
        jobs=300,
        bad="fails by id",
        must_break=frozenset({3}),
    ),
    Scenario(
        name="red-rescues-in-two-steps",
        stage=PostgresStage,
        faults=("freeze a worker", "kill a worker"),
        rounds=3,
        jobs=200,
        workers=4,
        slow_share=0.3,
        bad="rescues in two steps",
        must_break=frozenset({1, 3}),
    ),
    Scenario(
        name="red-commits-unsynced",
        stage=PostgresStage,
        faults=("kill the server",),
        rounds=5,
        pace=0.0,
        jobs=4000,
        bad="commits unsynced",
        must_break=frozenset({1}),
    ),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (*ATTACKS, *RED_CONTROLS)}
