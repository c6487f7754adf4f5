"""Tables of our own in somebody's SQL store, by the door `HostsTables`: their statements, and their versions.

For what stands beside the drivers and knows none of them: an outbox, the state of a migration. Each brings a
package with ``schema/<dialect>/NNN_<title>.sql`` and ``sql/<dialect>/<verb>.sql``, in which ``{table}``
stands for the name of a table, and lists its tables; the table of the versions is ``<label>_schema``.
"""

from __future__ import annotations

from jobcontract.hosted.schema import HostedSchema
from jobcontract.hosted.statements import HostedStatements, single

__all__ = ["HostedSchema", "HostedStatements", "single"]
