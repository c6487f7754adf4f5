"""Sphinx: the pages of this folder as a site, with a reference from the docstrings. `make docs` builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "jobcontract"
copyright = "the jobcontract authors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "settings"]
exclude_patterns = ["examples", "_extensions"]

html_theme = "furo"
html_title = "jobcontract"
html_show_sphinx = False

myst_heading_anchors = 3  # links to headings are checked like links to pages

# In a docstring, `name` is a thing of this project where there is one, and code otherwise.
default_role = "py:obj"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: name for name in ("Dialect", "Feature", "HandlerFunction", "Registrable", "Row", "Steps")
}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

# Fences whose languages are our own: see docs/security.md.
suppress_warnings = ["misc.highlighting_failure"]
