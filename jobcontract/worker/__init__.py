"""The worker: claims jobs, runs their handlers, and tells the store what came of them.

::

    Worker(backend, load_handlers("myapp.jobs:handlers"), WorkerOptions(concurrency=16)).run()
"""

from jobcontract.worker.loading import load_handlers
from jobcontract.worker.options import WorkerOptions
from jobcontract.worker.settle import Tally
from jobcontract.worker.supervisor import Supervisor, follow_supervisor, is_supervised
from jobcontract.worker.worker import Worker

__all__ = [
    "Supervisor",
    "Tally",
    "Worker",
    "WorkerOptions",
    "follow_supervisor",
    "is_supervised",
    "load_handlers",
]
