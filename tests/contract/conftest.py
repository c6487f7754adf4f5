"""Property tests are judged by what they find, not by how long a loaded machine takes for one example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("jobcontract", deadline=None, print_blob=True)
settings.load_profile("jobcontract")
