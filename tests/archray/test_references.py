"""Every citation in the tree resolves in docs/references.md, and every note by its letter in docs/notes.md."""

from __future__ import annotations

import calendar
import re
from collections import defaultdict
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("archray", "platform", "searchers", "trainables", "cluster", "tests", "benchmarks", "examples", "docs")
REFERENCES = REPOSITORY / "docs" / "references.md"
NOTES = REPOSITORY / "docs" / "notes.md"

NAME = r"[A-Z][A-Za-zÀ-ž'-]+"
YEAR = r"\(?((?:19|20)[0-9]{2})\b(?![-.][0-9])"
# "Liu et al. 2019", "Dong and Yang (2020)", "Fort, Hu & Lakshminarayanan 2019", and the short form "Liu 2019".
CITATION = re.compile(rf"({NAME})(?:(?:, {NAME})*,? (?:and|&) {NAME}|,? et al\.?)?,? {YEAR}")
ENTRY = re.compile(r'^- <a id="([a-z]+-[0-9]{4})"></a>\*\*(.+?)\.\*\* (.+?)(?=^- <a|^## |\Z)', re.M | re.S)
NOTE = re.compile(r"\b[Nn]otes? ((?:[A-Z][0-9]{1,2}(?:, | and | to |, and )?)+)")
NOTE_ENTRY = re.compile(r"^\*\*([A-Z][0-9]{1,2})\. [^*]+\*\*", re.M)

Key = tuple[str, str]  # first author, year


def pages() -> list[Path]:
    """The files whose citations and notes are looked at: Python and Markdown, RESULTS.md's too."""
    files = [file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*") if file.suffix in (".py", ".md")]
    return sorted([*files, REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md"])


def as_prose(text: str) -> str:
    """`text` with each line break, and the comment sign after it, as one space: citations run over lines."""
    return re.sub(r"\s*\n\s*(?:# ?)?", " ", text)


def citations(text: str) -> list[Key]:
    return [(name, year) for name, year in CITATION.findall(as_prose(text)) if name not in calendar.month_name]


def notes(text: str) -> list[str]:
    """Letters of the notes that `text` names; of `notes P1 to P5`, the first and the last."""
    return [letter for group in NOTE.findall(as_prose(text)) for letter in re.findall(r"[A-Z][0-9]{1,2}", group)]


def entries() -> dict[Key, tuple[str, str]]:
    """(first author, year) -> (the key that is cited, the rest of the entry)."""
    result = {}
    for _, key, body in ENTRY.findall(REFERENCES.read_text(encoding="utf-8")):
        (cited,) = citations(key)
        result[cited] = (key, body)
    return result


@pytest.fixture(scope="module")
def cited() -> dict[Key, set[str]]:
    """(first author, year) -> the files that cite it, relative to the repository."""
    places = defaultdict(set)
    for page in pages():
        if page not in (REFERENCES, Path(__file__).resolve()):
            for key in citations(page.read_text(encoding="utf-8")):
                places[key].add(page.relative_to(REPOSITORY).as_posix())
    return dict(places)


def test_every_citation_has_its_entry(cited: dict[Key, set[str]]) -> None:
    assert len(cited) > 40  # the pattern still finds them
    missing = {
        f"{name} {year}": sorted(places) for (name, year), places in cited.items() if (name, year) not in entries()
    }
    assert missing == {}


def test_every_entry_is_cited_where_it_says(cited: dict[Key, set[str]]) -> None:
    wrong = {
        name: [place for place in places if not any(file.startswith(place) for file in cited.get(key, ()))]
        for key, (name, body) in entries().items()
        if (places := [place for place in re.findall(r"`([^`\s]+)`", body) if "/" in place])
    }
    assert len(wrong) == len(entries())  # each says where
    assert {name: places for name, places in wrong.items() if places} == {}


def test_entries_are_whole_and_in_order() -> None:
    text = REFERENCES.read_text(encoding="utf-8")
    anchors = [anchor for anchor, _, _ in ENTRY.findall(text)]
    assert len(anchors) == text.count("<a id=")
    assert len(set(anchors)) == len(anchors)
    assert [anchor.rsplit("-", 1)[0] for anchor in anchors] == sorted(anchor.rsplit("-", 1)[0] for anchor in anchors)
    for anchor, key, body in ENTRY.findall(text):
        (name, year) = citations(key)[0]
        assert anchor == f"{name.lower()}-{year}"
        authors, title = body.split(" *", 1)
        count = authors.count(",") + 1
        form = {1: rf"{name} ", 2: rf"{name} and {NAME} "}.get(count, rf"{name} et al\. ")
        assert re.fullmatch(form + year, key), f"{key} has {count} authors"
        assert name in authors
        assert re.match(r"[^*]+\.\* ", title), f"{key}: no title"
        assert year in body, f"{key}: no year of the venue"


def test_links_to_arxiv_and_doi_say_what_they_lead_to() -> None:
    text = REFERENCES.read_text(encoding="utf-8")
    links = re.findall(r"\[(arXiv|doi):([^\]]+)\]\((https://[^)]+)\)", text)
    assert len(links) > 40
    places = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}
    assert [(kind, number) for kind, number, link in links if link != places[kind] + number] == []
    assert all(re.fullmatch(r"[0-9]{4}\.[0-9]{4,5}", number) for kind, number, _ in links if kind == "arXiv")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("DARTS, Liu et al. 2019, Eq. 2", [("Liu", "2019")]),
        ("(Dong & Yang 2020, table 2)", [("Dong", "2020")]),
        ("Fort, Hu & Lakshminarayanan 2019", [("Fort", "2019")]),
        ("as Abdelfattah\n    # et al. (2021) do", [("Abdelfattah", "2021")]),
        ("(Liu 2019, Eq. 6-8)", [("Liu", "2019")]),
        ("Rahimi and Recht 2008; Khodak et al. 2020, B.2.1", [("Rahimi", "2008"), ("Khodak", "2020")]),
        ("Field(2000, ge=1), of 1 March 2024", []),
    ],
)
def test_citations_are_found_in_every_form(text: str, found: list[Key]) -> None:
    assert citations(text) == found


def test_every_note_that_is_named_is_written() -> None:
    written = NOTE_ENTRY.findall(NOTES.read_text(encoding="utf-8"))
    assert len(set(written)) == len(written)
    order = "PHWGENU"
    assert written == sorted(written, key=lambda letter: (order.index(letter[0]), int(letter[1:])))
    named = defaultdict(set)
    for page in pages():
        if page not in (NOTES, Path(__file__).resolve()):
            for letter in notes(page.read_text(encoding="utf-8")):
                named[letter].add(page.relative_to(REPOSITORY).as_posix())
    assert len(named) > 20  # the pattern still finds them
    assert {letter: sorted(places) for letter, places in named.items() if letter not in written} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(note P1)", ["P1"]),
        ("chapter 5; notes E3, E5, E8.", ["E3", "E5", "E8"]),
        ("notes P1 to P5", ["P1", "P5"]),
        ("notes W2\n    # and W8.", ["W2", "W8"]),
        ("Note W7.", ["W7"]),
        ("a notebook S3", []),
    ],
)
def test_notes_are_found_in_every_form(text: str, found: list[str]) -> None:
    assert notes(text) == found
