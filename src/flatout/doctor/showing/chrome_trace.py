"""A diagnosis' timeline as trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing draw."""

from __future__ import annotations

from typing import Any

from flatout.doctor.diagnosis_facts import DiagnosisFacts, Span

from .terminal import PART_NAMES, clean

_PROCESS = 1
# Sums of seconds differ in their last digits.
_ROUNDING = 1e-9


def events(diagnosis: DiagnosisFacts) -> list[dict[str, Any]]:
    """One track for each lane, and a second one where spans of a lane overlap; times in microseconds."""
    tracks = _tracks(diagnosis.timeline)
    if not tracks:
        return []
    script = diagnosis.facts.get("script", "")
    found = [_name("process_name", 0, "name", clean(f"flatout doctor: {script}" if script else "flatout doctor"))]
    for thread, (lane, spans) in enumerate(tracks, 1):
        found.append(_name("thread_name", thread, "name", clean(lane)))
        found.append(_name("thread_sort_index", thread, "sort_index", thread))
        found += [
            {
                "ph": "X",
                "name": clean(span.name),
                "cat": clean(lane),
                "pid": _PROCESS,
                "tid": thread,
                "ts": span.start * 1e6,
                "dur": max(span.seconds, 0.0) * 1e6,
            }
            for span in spans
        ]
    return found


def _name(kind: str, thread: int, key: str, value: str | int) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": thread, "args": {key: value}}


def _tracks(timeline: tuple[Span, ...]) -> list[tuple[str, list[Span]]]:
    """Spans that follow each other: viewers drop those that overlap the one before in a track."""
    lanes: dict[str, list[list[Span]]] = {}
    for span in sorted(timeline, key=lambda span: span.start):
        tracks = lanes.setdefault(span.lane, [])
        free = (track for track in tracks if track[-1].start + track[-1].seconds <= span.start + _ROUNDING)
        track = next(free, None)
        if track is None:
            tracks.append(track := [])
        track.append(span)
    ordered = sorted(lanes, key=lambda lane: PART_NAMES.index(lane) if lane in PART_NAMES else len(PART_NAMES))
    return [(lane, track) for lane in ordered for track in lanes[lane]]
