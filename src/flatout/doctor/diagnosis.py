"""`Diagnosis`: what `flatout.diagnose` returns, to be printed, shown in a notebook, or saved."""

from __future__ import annotations

import json
from pathlib import Path

from .diagnosis_facts import DiagnosisFacts


class Diagnosis(DiagnosisFacts):
    __doc__ = DiagnosisFacts.__doc__

    def save_json(self, path: str | Path) -> None:
        """Write it for machines."""
        Path(path).write_text(json.dumps(self.to_json(), indent=2, ensure_ascii=False), encoding="utf-8")

    def save_html(self, path: str | Path) -> None:
        """Write it as a page, in one file that needs nothing else."""
        from .showing.html_page import page

        Path(path).write_text(page(self), encoding="utf-8")

    def save_trace(self, path: str | Path) -> None:
        """Write the timeline for Perfetto (ui.perfetto.dev) and chrome://tracing."""
        from .showing.chrome_trace import events

        Path(path).write_text(json.dumps({"traceEvents": events(self)}), encoding="utf-8")

    def __str__(self) -> str:
        from .showing.terminal import as_text  # With rich, which takes its time.

        return as_text(self)

    def _repr_html_(self) -> str:
        from .showing.html_page import fragment

        return fragment(self)
