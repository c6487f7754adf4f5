"""What an application's tests need: a store in memory, the jobs run on the spot, and words to ask for them.

With pytest the fixture ``jobs`` is there by itself::

    def test_an_upload_is_embedded(jobs):
        upload(jobs.backend, document_id=7)
        jobs.assert_registered(kind="embed_document", input_ref={"document_id": 7})
        assert jobs.drain(handlers).completed == 1

Without it: ``with Jobs.in_memory() as jobs: ...``. `Jobs` takes any backend that can look jobs up, such as
one on the application's own test database, where ``register(job, connection=...)`` commits and rolls back for
real.
"""

from jobcontract.testing.drain import Drained, drain
from jobcontract.testing.jobs import Jobs
from jobcontract.testing.memory import MemoryBackend

__all__ = ["Drained", "Jobs", "MemoryBackend", "drain"]
