"""The page of a rule: `flatout check --explain FO101`, and docs/rules/FO101.md."""

from __future__ import annotations

import re
import textwrap

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


def page(rule: Rule) -> str:
    """The page of one rule."""
    severities = " | ".join(rule.severity(backend) for backend in BACKENDS)
    words = (
        "*error*: does not run there. *wrong*: runs, and is silently wrong. *slow*, *info*: as the words say. "
        "A finding can be milder or graver than its rule where the code shows more."
    )
    return (
        f"# {rule.code}: {rule.name}\n\n"
        f"{wrapped(rule.summary)}\n\n"
        f"## Before\n\n```python\n{with_imports(rule.before)}\n```\n\n"
        f"## After\n\n```python\n{with_imports(rule.after)}\n```\n\n"
        f"{wrapped(rule.rewrite)}\n\n"
        f"## Why\n\n{wrapped(rule.why)}\n\n"
        f"| {' | '.join(BACKENDS)} |\n| --- | --- | --- |\n| {severities} |\n\n"
        f"{wrapped(words)}\n\n"
        f"## When not\n\n{wrapped(rule.when_not)}\n\n"
        f"To excuse a line: `# flatout: noqa[{rule.code}]`.\n"
    )


def wrapped(text: str, rest: str = "") -> str:
    """Prose in lines that fit a screen; what stands in backquotes stays together."""
    kept = re.sub(r"`[^`]*`", lambda code: code.group().replace(" ", "\0"), text)
    lines = textwrap.wrap(kept, _WIDTH, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def with_imports(code: str) -> str:
    """Code of a page with the imports that it needs, so that it runs as it stands."""
    head = "\n".join(line for name, line in _IMPORTS if re.search(rf"\b{name}", code))
    gap = "\n\n\n" if code.startswith(("def", "class", "@")) else "\n\n"
    return f"{head}{gap}{code}" if head else code
