"""Texts as 64-bit hashes of tokens and n-grams; each text is tokenised once per way of doing it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.utils import murmurhash3_32

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's increment (Steele et al. 2014); odd, so no hash is lost
_WORDS = re.compile(
    r"\w+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b"  # do n't, she 'll
    r"|\d+(?:[.,]\d+)+|\w+(?:-\w+)*|[-.=]{2,}|[^\w\s]",
    re.IGNORECASE,
)

TOKENISERS: dict[str, Callable[[str], list[str]]] = {
    "spaces": str.split,
    "punctuation": re.compile(r"\w+|[^\w\s]+").findall,  # runs of word characters, and of punctuation
    "words": _WORDS.findall,  # nearly NLTK's: contractions, numbers and hyphenated words, marks apart
}


@dataclass(frozen=True)
class _Tokens:
    """All texts of a corpus, cut in one way.

    Attributes:
        ids: (total,) int32 of the distinct tokens, text after text.
        starts: (n + 1,) where each text begins in `ids`.
        hashes: (distinct,) of the distinct tokens.
        stop: (distinct,) whether a token is a stop word, in any case.
    """

    ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    hashes: Hashes
    stop: npt.NDArray[np.bool_]


class Corpus:
    """Texts, and the n-grams of any of them. `corpus_of` keeps one per tuple of texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        self._kept: dict[tuple[str, str], _Tokens] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def ngrams(
        self, rows: npt.NDArray[np.integer], tokens: str, stop_words: str, case: str, order: int
    ) -> tuple[Hashes, Rows]:
        """Every n-gram of 1 to `order` tokens in the chosen texts, as often as it occurs.

        Stop words are dropped before n-grams are formed, and no n-gram reaches over the end of a text.

        Args:
            rows: (m,) which texts.
            tokens, stop_words, case, order: as in the space `ngrams`.

        Returns: hashes (total,); the place in `rows` of each n-gram's text (total,).
        """
        cut = self._tokens(tokens, case)
        lengths = cut.starts[rows + 1] - cut.starts[rows]
        ends = np.cumsum(lengths)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        ids = cut.ids[np.repeat(cut.starts[rows], lengths) + within]
        places = np.repeat(np.arange(len(rows)), lengths)
        if stop_words == "drop":
            kept = ~cut.stop[ids]
            ids, places = ids[kept], places[kept]
        single = cut.hashes[ids]
        hashes, owners = [single], [places]
        longer, same = single, np.ones(len(single), dtype=bool)
        for reach in range(1, order):
            # longer[i] is the n-gram of `reach` tokens that begins at token i; same[i]: it lies in one text
            same = same[:-1] & (places[reach:] == places[:-reach]) if len(same) > 1 else same[:0]
            longer = mixed(longer[: len(same)], single[reach:])
            hashes.append(longer[same])
            owners.append(places[: len(same)][same])
        return np.concatenate(hashes), np.concatenate(owners)

    def _tokens(self, tokens: str, case: str) -> _Tokens:
        if (tokens, case) not in self._kept:
            self._kept[tokens, case] = _cut(self.texts, TOKENISERS[tokens], lower=case == "lower")
        return self._kept[tokens, case]


@lru_cache(maxsize=6)  # three parts of two data sets
def corpus_of(texts: tuple[str, ...]) -> Corpus:
    """The corpus of these texts; it keeps its tokens for this process."""
    return Corpus(texts)


def token_hash(token: str) -> int:
    """64 bits: MurmurHash3 under two seeds, as scikit-learn computes it."""
    encoded = token.encode("utf-8", "surrogatepass")
    return murmurhash3_32(encoded, 0, positive=True) << 32 | murmurhash3_32(encoded, 1, positive=True)


def mixed(left: Hashes, right: Hashes | np.uint64) -> Hashes:
    """A hash of pairs of hashes, in this order: the finaliser of splitmix64."""
    with np.errstate(over="ignore"):  # arithmetic is modulo 2^64
        z = left * _GOLDEN + right
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _cut(texts: Sequence[str], tokenise: Callable[[str], list[str]], *, lower: bool) -> _Tokens:
    numbers: dict[str, int] = {}
    parts: list[npt.NDArray[np.int32]] = []
    for text in texts:
        found = tokenise(text.lower() if lower else text)
        parts.append(np.array([numbers.setdefault(token, len(numbers)) for token in found], dtype=np.int32))
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return _Tokens(
        ids=np.concatenate([np.empty(0, dtype=np.int32), *parts]),
        starts=starts,
        hashes=np.array([token_hash(token) for token in numbers], dtype=np.uint64),
        stop=np.array([token.lower() in ENGLISH_STOP_WORDS for token in numbers], dtype=bool),
    )
