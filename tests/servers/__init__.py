"""Real servers as private processes, for tests and benchmarks: own folder, free ports, gone with us.

    with PostgresServer(fsync=False) as server:     # .postgres, .redis, .rabbitmq, .pgbouncer
        url = server.url(server.create_database())
        server.kill(); server.start()               # SIGKILL to all of it; same port, same data
        with server.paused(): ...                   # SIGSTOP to all of it
        with Proxy(server.address) as proxy:        # .proxy
            url = server.url(host=proxy.host, port=proxy.port)
            cut = proxy.cut_next_reply(contains(b"COMMIT"))

Groups on one host: `redis_groups.start_sentinel`, `redis_groups.start_cluster`, `rabbitmq.start_cluster`.

Tests ask for a running server by fixture (`postgres_server`, `redis_server`, `rabbitmq_server`,
`pgbouncer_server`; see .fixtures). They share it, so each makes a database, virtual host or key prefix of its
own there. One that kills, pauses or fills a server starts one of its own from `postgres_programs` and so on.

Where the programs come from is told in .binaries; `python -m tests.servers.install` gets them ahead of time.
"""
