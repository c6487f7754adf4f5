"""`jobctl`, the command line: one file per command, and nothing here but the way in.

What a command needs is in `session` (the settings and the store), `command` (options that all commands
share, examples in the help), `output` and `escape` (what people and programs read) and `exits` (what the
exit codes mean). Other packages bring commands of their own through the entry-point group
``jobcontract.commands``; see `plugins`.
"""

from __future__ import annotations

import signal
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run ``jobctl`` on the process's arguments and exit. The entry point of the script."""
    # SIGTERM is an interrupt: what is under way says how far it came, a terminal gets its cursor back.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Here and not above, so that Ctrl-C during the import is an interrupt and not a traceback.
        from jobcontract.cli.root import jobctl

        jobctl.main(prog_name="jobctl")
    except KeyboardInterrupt:
        pass
    raise SystemExit(130)
