"""The directive `settings`: the fields of a settings model, with what each takes and what it is else.

::

    .. settings:: jobcontract.config.WorkerTable
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, ClassVar, cast

from docutils import nodes
from docutils.statemachine import StringList
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

from jobcontract.durations import format_duration


class SettingsDirective(SphinxDirective):
    """One argument: the full name of a pydantic model. Fields without a docstring are listed without one."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].rpartition(".")
        model = cast("type[BaseModel]", getattr(import_module(module), name))
        comments = ModuleAnalyzer.for_module(module).find_attr_docs()
        schema = model.model_json_schema()
        lines: list[str] = []
        for field, about in model.model_fields.items():
            if about.exclude:
                continue
            key = about.alias or field
            lines += [f"``{key}``", f"    *{_takes(schema['properties'][key], schema)}*"]
            if not about.is_required():
                lines[-1] += _otherwise(about.get_default(call_default_factory=True))
            lines += ["", *(f"    {line}" for line in comments.get((name, field), [])), ""]
        return self.parse_text_to_nodes(StringList(lines, source=self.arguments[0]))


def _takes(schema: dict[str, Any], root: dict[str, Any]) -> str:
    """What a value may be, for people, from its JSON schema."""
    if "$ref" in schema:
        return _takes(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    choices = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    if choices:
        return " or ".join(_takes(one, root) for one in choices)
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema.get("format") == "duration":
        return "a duration"
    kind = schema.get("type", "value")
    low, high = schema.get("minimum"), schema.get("maximum")
    if kind in ("integer", "number") and low is not None:
        return f"{kind}, {low:,} to {high:,}" if high is not None else f"{kind}, at least {low:,}"
    return {"string": "text", "object": "table", "boolean": "true or false"}.get(kind, kind)


def _otherwise(default: object) -> str:
    if default is None or isinstance(default, (BaseModel, SecretStr)) or default == {}:
        return ""
    if hasattr(default, "total_seconds"):
        return f", else ``{format_duration(cast('Any', default)).replace('.0s', 's')}``"
    if isinstance(default, str):
        return f", else ``{default}``"
    return f", else ``{json.dumps(to_jsonable_python(default))}``"


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_directive("settings", SettingsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
