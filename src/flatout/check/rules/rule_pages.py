"""The documentation of the rules, written from the rules themselves: docs/losses.md and docs/rules/FO101.md and so on.

    python -m flatout.check.rules.rule_pages docs

A test compares the files with what this would write.
"""

from __future__ import annotations

import re
import sys
import textwrap
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
_WIDTH = 118
_BEGIN, _END = "<!-- rules: begin -->", "<!-- rules: end -->"


def page(rule: Rule) -> str:
    """The page of one rule."""
    severities = " | ".join(rule.severity(backend) for backend in BACKENDS)
    words = (
        "*error*: does not run there. *wrong*: runs, and is silently wrong. *slow*, *info*: as the words say. "
        "A finding can be milder or graver than its rule where the code shows more."
    )
    return (
        f"# {rule.code}: {rule.name}\n\n"
        f"{_wrapped(rule.summary)}\n\n"
        f"## Before\n\n```python\n{with_imports(rule.before)}\n```\n\n"
        f"## After\n\n```python\n{with_imports(rule.after)}\n```\n\n"
        f"{_wrapped(rule.rewrite)}\n\n"
        f"## Why\n\n{_wrapped(rule.why)}\n\n"
        f"| {' | '.join(BACKENDS)} |\n| --- | --- | --- |\n| {severities} |\n\n"
        f"{_wrapped(words)}\n\n"
        f"## When not\n\n{_wrapped(rule.when_not)}\n\n"
        f"To excuse a line: `# flatout: noqa[{rule.code}]`.\n"
    )


def _wrapped(text: str, rest: str = "") -> str:
    """Prose in lines that fit a screen; what stands in backquotes stays together."""
    kept = re.sub(r"`[^`]*`", lambda code: code.group().replace(" ", "\0"), text)
    lines = textwrap.wrap(kept, _WIDTH, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def with_imports(code: str) -> str:
    """Code of a page with the imports that it needs, so that it runs as it stands."""
    head = "\n".join(line for name, line in _IMPORTS if re.search(rf"\b{name}", code))
    gap = "\n\n\n" if code.startswith(("def", "class", "@")) else "\n\n"
    return f"{head}{gap}{code}" if head else code


def listing() -> str:
    """All rules, for docs/losses.md."""
    lines = []
    for start, about in FAMILIES.items():
        lines += [f"### {start}xx: {about}", ""]
        for rule in family(start):
            levels = ", ".join(f"{backend} {rule.severity(backend)}" for backend in BACKENDS)
            lines.append(_wrapped(f"- [{rule.code}](rules/{rule.code}.md): {rule.summary} ({levels})", "  "))
        lines.append("")
    return "\n".join(lines)


def with_listing(text: str) -> str:
    """The text of docs/losses.md with the present list of rules between its marks."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{listing()}\n{_END}{after}"


def pages() -> dict[str, str]:
    """File name under docs/rules to its text."""
    return {f"{rule.code}.md": page(rule) for rule in RULES.values()}


def write(docs: Path) -> None:
    """Write every page, and the list of docs/losses.md."""
    (docs / "rules").mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (docs / "rules" / name).write_text(text, encoding="utf-8")
    losses = docs / "losses.md"
    losses.write_text(with_listing(losses.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
