"""The page is parsed, and looked at by a headless Chromium where there is one."""

from __future__ import annotations

import functools
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import doctor_cases
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.doctor.diagnosis import Diagnosis
from flatout.doctor.showing.html_page import fragment, page
from flatout.doctor.showing.terminal import clean

pytestmark = pytest.mark.backend("jax")
_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_needs_chromium = pytest.mark.skipif(_CHROMIUM is None, reason="needs a Chromium")
_SIZES = ((1280, 800), (390, 844))
_VOID = {"meta", "col", "br"}


class _Parsed(HTMLParser):
    """Tags with the names of their attributes, all values of attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.values: list[str] = []
        self.words = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.values += [value or "" for _, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def _chromium(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
    command = [str(_CHROMIUM), *own, f"--user-data-dir={tmp_path / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)


def _opened(tmp_path: Path, text: str) -> tuple[list[str], list[str]]:
    """What a page writes to the console, and what it asks for beside itself."""
    file, log = tmp_path / "page.html", tmp_path / "net.json"
    file.write_text(text, encoding="utf-8")
    done = _chromium(tmp_path, f"--log-net-log={log}", "--enable-logging=stderr", "--dump-dom", file.as_uri())
    net = json.loads(log.read_text())
    starts = net["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    found = [event["params"] for event in net["events"] if event["type"] == starts and "url" in event["params"]]
    # Chromium's own requests, for updates of itself, come from no page.
    asked = [one["url"] for one in found if one.get("initiator") != "not an origin"]
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line], asked


_MEASURE = """
addEventListener("load", () => {
  document.body.dataset.found = JSON.stringify([...document.querySelectorAll("iframe")].map(frame => {
    const inside = frame.contentDocument, root = inside.documentElement;
    const box = inside.querySelector("h1").getBoundingClientRect();
    const tiles = inside.querySelector(".tiles").getBoundingClientRect();
    return {width: frame.clientWidth, height: frame.clientHeight, scrolled: root.scrollWidth, policy: root.outerHTML
      .includes("default-src"), top: box.top, bottom: box.bottom, tiles: tiles.bottom, scripts:
      inside.querySelectorAll("script,img,a").length, paper: getComputedStyle(inside.body).backgroundColor,
      columns: new Set([...inside.querySelector(".pair")?.children ?? []].map(one => one.offsetLeft)).size,
      verdict: inside.querySelector("h1").textContent};
  }));
});
"""


def _measured(tmp_path: Path, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """The page in frames of both sizes: no window of a headless Chromium is as narrow as a phone."""
    text = html.escape(page(diagnosis))
    frames = "".join(f'<iframe srcdoc="{text}" style="border:0;width:{w}px;height:{h}px"></iframe>' for w, h in _SIZES)
    file = tmp_path / "frames.html"
    file.write_text(f'<meta charset="utf-8"><body>{frames}<script>{_MEASURE}</script></body>', encoding="utf-8")
    dom = _chromium(tmp_path, "--dump-dom", file.as_uri()).stdout
    found = re.search('data-found="([^"]*)"', dom)
    assert found
    return json.loads(html.unescape(found[1]))


@_needs_chromium
def test_verdict_and_tiles_are_seen_without_scrolling_on_a_desk_and_on_a_phone(tmp_path: Path) -> None:
    desk, phone = _measured(tmp_path, doctor_cases.diagnosis())
    assert (desk["width"], phone["width"]) == (1280, 390)
    for seen in (desk, phone):
        assert seen["policy"]
        assert seen["top"] >= 0
        assert seen["bottom"] < seen["tiles"] < seen["height"]
        assert seen["scrolled"] <= seen["width"]
        assert seen["verdict"] == doctor_cases.diagnosis().verdict
    assert (desk["columns"], phone["columns"]) == (2, 1)  # The code before and after.


@_needs_chromium
def test_hostile_strings_are_text_and_do_not_widen_the_page(tmp_path: Path) -> None:
    for seen in _measured(tmp_path, doctor_cases.hostile()):
        assert seen["scripts"] == 0
        assert seen["scrolled"] <= seen["width"]
        assert seen["verdict"] == clean(doctor_cases.HOSTILE)


@_needs_chromium
@pytest.mark.parametrize("case", ["diagnosis", "hostile", "bare"])
def test_page_asks_for_nothing_and_has_no_error(tmp_path: Path, case: str) -> None:
    assert _opened(tmp_path, page(getattr(doctor_cases, case)())) == ([], [])


@_needs_chromium
def test_a_request_and_an_error_would_be_found(tmp_path: Path) -> None:
    picture = '<img src="http://127.0.0.1:9/x.png"><script>console.error("here")</script>'
    errors, asked = _opened(tmp_path, f"<!doctype html>{picture}")
    assert any("here" in line for line in errors)
    assert asked == ["http://127.0.0.1:9/x.png"]
    # The page's own policy would stop both.
    errors, asked = _opened(tmp_path, page(doctor_cases.diagnosis()).replace("<main", f"{picture}<main"))
    assert not asked
    assert len(errors) >= 2
    assert all("Content Security Policy" in line for line in errors)


def test_every_section_is_there() -> None:
    words = _Parsed(page(doctor_cases.diagnosis())).words
    for expected in (
        "input-bound",
        "41.2 ms",
        "39.8 to 43.0",
        "3.1x faster (2.8 to 3.4), measured",
        "at most 3x faster",
        "python -m flatout does it by itself",
        "not separable from noise",
        "Compiling is paid once",
        "examples/forecast/train.py:42",
        "examples/forecast/callbacks.py:17",
        "Lines that take the time",
        "SlowWindows.__getitem__",
        "Some steps, as they ran",
        "on_train_batch_end: 3.40 ms",
        "1.9 GB",
        "The same batch again",
        "The data go to the device once",
        "Several GPUs: this machine has one.",
        "1,204,737 parameters",
        "The diagnosis took 18.6 s.",
    ):
        assert expected in words


def test_empty_sections_are_left_out() -> None:
    parsed = _Parsed(page(doctor_cases.bare()))
    assert "Noise hides every part of the step." in parsed.words
    assert "400 µs" in parsed.words
    tags = {tag for tag, *_ in parsed.tags}
    assert tags.isdisjoint({"section", "h2", "table", "svg", "footer", "ol", "ul"})


def test_page_forbids_all_but_its_own_style() -> None:
    text = page(doctor_cases.diagnosis())
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in text
    assert "http:" not in text.replace("http-equiv", "")
    assert "url(" not in text
    assert "@import" not in text


def test_style_of_a_fragment_touches_nothing_else() -> None:
    text = fragment(doctor_cases.diagnosis())
    style = re.sub(r"/\*.*?\*/", "", text[len("<style>") : text.index("</style>")], flags=re.DOTALL)
    selectors = [one.strip() for one in re.findall(r"([^{}]+)\{", style) if not one.strip().startswith("@")]
    assert len(selectors) > 50
    assert [one for group in selectors for one in group.split(",") if not one.strip().startswith(".fo-doctor")] == []
    assert "<html" not in text
    assert " id=" not in text


def test_shares_that_pass_the_whole_or_miss_it_still_make_a_bar() -> None:
    parts = doctor_cases.diagnosis().parts
    assert 'style="flex:0.3360 0 0"' in page(doctor_cases.diagnosis(parts=parts[:1], epoch=()))
    assert "flex:-" not in page(doctor_cases.diagnosis(parts=parts * 2))


def test_a_timeline_of_no_length_and_one_of_many_spans_are_drawn() -> None:
    span = doctor_cases.diagnosis().timeline[0]
    still = type(span)("input", "nothing", 0.0, 0.0)
    assert "nothing: 0 s" in page(doctor_cases.diagnosis(timeline=(still,)))
    assert "The first 2,000 of 3,000 spans." in page(doctor_cases.diagnosis(timeline=(span,) * 3000))


@functools.cache
def _harmless() -> tuple[_Parsed, _Parsed]:
    return _Parsed(page(doctor_cases.filled("x"))), _Parsed(fragment(doctor_cases.filled("x")))


def _shape(parsed: _Parsed) -> list[tuple[str, ...]]:
    # Text between backticks is set as code.
    return [tag for tag in parsed.tags if tag != ("code",)]


@settings(deadline=None, max_examples=60)
@given(
    st.text(min_size=1, max_size=60).filter(str.strip)
    | st.text("<>&\"'`;=/[]\\ x\0\n\r!-", min_size=1).map("x{}".format)
)
def test_no_text_changes_the_tags_or_the_names_of_their_attributes(text: str) -> None:
    _compare_with_harmless(text)


def test_no_hostile_text_changes_the_tags() -> None:
    _compare_with_harmless(doctor_cases.HOSTILE)


def _compare_with_harmless(text: str) -> None:
    diagnosis = doctor_cases.filled(text)
    for written, harmless in zip((page(diagnosis), fragment(diagnosis)), _harmless(), strict=True):
        parsed = _Parsed(written)
        assert parsed.open == []
        assert _shape(parsed) == _shape(harmless)
        # Classes and styles are ours; the text is the label of the bars and of the lanes.
        assert len(parsed.values) == len(harmless.values)
        changed = [value for value in parsed.values if value not in harmless.values]
        assert all(clean(text) in value for value in changed)
        assert clean(text).rstrip() in parsed.words
        written.encode()
