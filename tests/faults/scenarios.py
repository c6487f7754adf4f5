"""Which stores are attacked, and how; and the red controls: products with a fault that has to be seen."""

from __future__ import annotations

from tests.faults.hard_stages import (
    PostgresLosesPower,
    PostgresOnSmallDisks,
    RabbitLosesPower,
    RabbitPartitioned,
    RedisEverySecondLosesPower,
    RedisLosesPower,
    RedisOnSmallDisk,
    RedisUnderSentinel,
    RedisWaitsForReplicas,
    SQLiteLosesPower,
    SQLiteNormalLosesPower,
    SQLiteOnSmallDisk,
)
from tests.faults.laboratory import Scenario
from tests.faults.moving_stages import (
    FilesToFiles,
    PostgresToRabbit,
    PostgresToRedis,
    SchemaToSchema,
    SQLiteToPostgres,
)
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

CLOCKS = ("shift a clock", "freeze a worker")
RELAY = ("kill the relay", "freeze the relay", "kill the relay")

ATTACKS = (
    Scenario(name="postgres", stage=PostgresStage, faults=EVERYTHING),
    Scenario(name="sqlite", stage=SQLiteStage, faults=(*PROCESSES, "hold the write lock")),
    Scenario(name="redis", stage=RedisStage, faults=(*EVERYTHING, "forget the scripts")),
    Scenario(name="rabbitmq", stage=RabbitStage, faults=EVERYTHING),
    Scenario(name="outbox-redis", stage=OutboxRedisStage, faults=(*EVERYTHING, *RELAY)),
    Scenario(name="outbox-rabbitmq", stage=OutboxRabbitStage, faults=(*EVERYTHING, *RELAY)),
)

COORDINATOR = ("kill the coordinator", "kill the coordinator", "freeze the coordinator")
CLIENTS = (
    "freeze a producer through a cut over",
    "kill the workers through a cut over",
    "kill a worker",
    "freeze a worker",
)
MOVES = tuple(
    Scenario(
        name=stage.name, stage=stage, faults=(*COORDINATOR, *CLIENTS, *faults), jobs=300, pace=0.3, odd=False
    )
    for stage, faults in (
        (FilesToFiles, ()),
        (SQLiteToPostgres, ("restart the server", "reset connections", "lost replies")),
        (PostgresToRedis, ("kill the server", "restart the server", "silence", "lost replies")),
        (PostgresToRabbit, ("restart the server", "reset connections", "kill the relay", "lost replies")),
        (
            SchemaToSchema,
            ("restart the control store", "silence the control store", "kill the server", "lost replies"),
        ),
    )
)
"""Jobs move from one store to another, back, and there again."""

HARD = (
    Scenario(
        name="postgres-neighbours",
        stage=PostgresStage,
        faults=("exhaust the connections", "pin the horizon", "kill a producer", "kill a worker"),
    ),
    Scenario(
        name="postgres-clocks", stage=PostgresStage, faults=("shift a clock", "freeze a worker"), rounds=3
    ),
    Scenario(name="redis-clocks", stage=RedisStage, faults=("shift a clock", "freeze a worker"), rounds=3),
    Scenario(name="redis-memory", stage=RedisStage, faults=("fill the memory", "kill a worker"), rounds=2),
    Scenario(
        name="rabbitmq-alarm", stage=RabbitStage, faults=("raise the alarm", "kill a worker"), odd=False
    ),
    *(
        Scenario(name=stage.name, stage=stage, faults=("fill a disk", "kill a worker"), rounds=3)
        for stage in (PostgresOnSmallDisks, SQLiteOnSmallDisk, RedisOnSmallDisk)
    ),
    *(
        Scenario(name=stage.name, stage=stage, faults=("lose power",), rounds=3, jobs=2000, pace=0.0)
        for stage in (PostgresLosesPower, SQLiteLosesPower, RedisLosesPower, RabbitLosesPower)
    ),
    Scenario(
        name="redis-sentinel-wait",
        stage=RedisWaitsForReplicas,
        faults=("fail over",),
        rounds=2,
        odd=False,
        judged="loss",
    ),
    Scenario(
        name="rabbitmq-cluster",
        stage=RabbitPartitioned,
        faults=("fail over", "kill a worker"),
        odd=False,
        # A retry that was on its way to a node that stands still is sent again after three minutes.
        drained_within=300.0,
    ),
)

COUNTED = (
    *(
        Scenario(
            name=stage.name,
            stage=stage,
            faults=("lose power",),
            rounds=3,
            jobs=2000,
            pace=0.0,
            odd=False,
            drained_within=20.0,
            judged="nothing",
        )
        for stage in (SQLiteNormalLosesPower, RedisEverySecondLosesPower)
    ),
    Scenario(
        name="redis-sentinel",
        stage=RedisUnderSentinel,
        faults=("fail over",),
        rounds=2,
        jobs=2000,
        pace=0.0,
        odd=False,
        drained_within=20.0,
        judged="nothing",
    ),
)
"""What a setting does not promise, in numbers."""

RED_CONTROLS = (
    *(
        Scenario(
            name=f"red-{bad.replace(' ', '-')}",
            stage=FilesToFiles,
            faults=faults,
            jobs=200,
            pace=pace,
            odd=False,
            back=back,
            drained_within=15.0,
            bad=bad,
            must_break=frozenset({9}),
        )
        for bad, pace, back, faults in (
            ("shuts no store", 0.2, False, ()),
            ("buries before it has arrived", 0.1, True, ("kill the coordinator of a backlog",) * 3),
            ("copies without hiding", 0.1, False, ("kill the workers through a cut over",)),
        )
    ),
    Scenario(
        name="red-relays-by-cursor",
        stage=OutboxRedisStage,
        faults=(),
        jobs=400,
        hold_share=1.0,
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

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario for scenario in (*ATTACKS, *MOVES, *HARD, *COUNTED, *RED_CONTROLS)
}
