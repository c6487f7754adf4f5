"""SAQ on PostgreSQL: as on Redis."""

from __future__ import annotations

import saq_redis
import stage

if __name__ == "__main__":
    stage.main(saq_redis.prepare, saq_redis.register, saq_redis.work)
