"""`acme` is a project of its own: its tests run where it is installed, started by `test_acme_wheel`."""

from __future__ import annotations

collect_ignore = ["acme"]
