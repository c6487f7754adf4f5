"""The reference part of docs/cli.md, made from the commands themselves.

``python -m tests.cli.reference`` writes it; a test compares.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import click

from jobcontract.cli.command import SHARED_OPTIONS
from jobcontract.cli.exits import MEANINGS
from tests.cli.tree import Entry, entries, examples_of, runs

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN = "<!-- made by python -m tests.cli.reference from here on -->\n"


def reference() -> str:
    """Everything below `BEGIN`."""
    root, *commands = entries()
    parts = [
        "\n## Exit codes\n",
        _table(("Code", "Meaning"), [(str(int(code)), meaning) for code, meaning in MEANINGS.items()]),
        "\n## Options of every command\n",
        "They may stand before or after the command's name.\n",
        _table(("Option", "Meaning"), _options(root, shared=True)),
        "\n## Commands\n",
    ]
    for entry in commands:
        if runs(entry.command):
            parts.append(_section(entry))
    return "\n".join(parts)


def _section(entry: Entry) -> str:
    usage = " ".join([entry.path, *entry.command.collect_usage_pieces(entry.context)])
    parts = [f"\n### `{entry.path}`\n", _prose(entry.command.help or ""), f"```text\n{usage}\n```\n"]
    options = _options(entry, shared=False)
    if options:
        parts.append(_table(("Option", "Meaning"), options))
    examples = examples_of(entry.command)
    if examples:
        lines = "\n".join(f"$ {example}" for example in examples)
        parts.append(f"```console\n{lines}\n```\n")
    return "\n".join(parts)


def _prose(text: str) -> str:
    """The help as Markdown: paragraphs unwrapped, and what click is told not to wrap as it is."""
    paragraphs: list[str] = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            paragraphs.append(f"```text\n{paragraph[2:]}\n```\n")
        else:
            paragraphs.append(" ".join(paragraph.split()) + "\n")
    return "\n".join(paragraphs)


def _options(entry: Entry, *, shared: bool) -> list[tuple[str, str]]:
    records: list[tuple[str, str]] = []
    for parameter in entry.command.get_params(entry.context):
        if not isinstance(parameter, click.Option) or {"--help", "--version"} & set(parameter.opts):
            continue
        record = parameter.get_help_record(entry.context)
        if record is not None and (parameter.name in SHARED_OPTIONS) == shared:
            records.append((f"`{record[0]}`", record[1]))
    return records


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [
        " | ".join(head),
        "--- | ---",
        *(" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows),
    ]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def main() -> None:
    """Write the reference into the document."""
    preface = DOCUMENT.read_text().partition(BEGIN)[0]
    DOCUMENT.write_text(preface + BEGIN + reference())


if __name__ == "__main__":
    main()
