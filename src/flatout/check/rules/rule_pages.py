"""The documentation of the rules, written from the rules themselves: docs/losses.md and docs/rules/FO101.md and so on.

    python -m flatout.check.rules.rule_pages docs

A test compares the files with what this would write.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .catalogue import FAMILIES, RULES, family
from .rule import BACKENDS, Rule

# The name in the code, and the line that provides it.
_IMPORTS = (
    (r"flatout\.", "import flatout"),
    (r"jax\.", "import jax"),
    (r"keras\.", "import keras"),
    (r"np\.", "import numpy as np"),
    (r"pd\.", "import pandas as pd"),
    (r"tf\.", "import tensorflow as tf"),
    (r"ops\.", "from keras import ops"),
    (r"roc_auc_score", "from sklearn.metrics import roc_auc_score"),
)
_BEGIN, _END = "<!-- rules: begin -->", "<!-- rules: end -->"


def page(rule: Rule) -> str:
    """The page of one rule."""
    severities = " | ".join(rule.severity(backend) for backend in BACKENDS)
    return (
        f"# {rule.code}: {rule.name}\n\n"
        f"{rule.summary}\n\n"
        f"| {' | '.join(BACKENDS)} |\n| --- | --- | --- |\n| {severities} |\n\n"
        "*error*: does not run there. *wrong*: runs, and is silently wrong. *slow*, *info*: as the words say. A "
        "finding can be "
        "milder or graver than its rule where the code shows more.\n\n"
        f"## Why\n\n{rule.why}\n\n"
        f"## Before\n\n```python\n{with_imports(rule.before)}\n```\n\n"
        f"## After\n\n```python\n{with_imports(rule.after)}\n```\n\n"
        f"{rule.rewrite}\n\n"
        f"## When not\n\n{rule.when_not}\n\n"
        f"To excuse a line: `# flatout: noqa[{rule.code}]`.\n"
    )


def with_imports(code: str) -> str:
    """Code of a page with the imports that it needs, so that it runs as it stands."""
    head = "\n".join(line for name, line in _IMPORTS if re.search(rf"\b{name}", code))
    gap = "\n\n\n" if code.startswith(("def", "class", "@")) else "\n\n"
    return f"{head}{gap}{code}" if head else code


def table() -> str:
    """All rules, for docs/losses.md."""
    lines = []
    for start, about in FAMILIES.items():
        lines += [
            f"### {start}xx: {about}",
            "",
            "| code | what | jax | tensorflow | torch |",
            "| --- | --- | --- | --- | --- |",
        ]
        for rule in family(start):
            levels = " | ".join(rule.severity(backend) for backend in BACKENDS)
            lines.append(f"| [{rule.code}](rules/{rule.code}.md) | {rule.summary} | {levels} |")
        lines.append("")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """The text of docs/losses.md with the present table of rules between its marks."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{table()}\n{_END}{after}"


def pages() -> dict[str, str]:
    """File name under docs/rules to its text."""
    return {f"{rule.code}.md": page(rule) for rule in RULES.values()}


def write(docs: Path) -> None:
    """Write every page, and the table of docs/losses.md."""
    (docs / "rules").mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (docs / "rules" / name).write_text(text, encoding="utf-8")
    losses = docs / "losses.md"
    losses.write_text(with_table(losses.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
