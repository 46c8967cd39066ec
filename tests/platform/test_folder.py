"""Whole files in, whole files out."""

import math

import pandas as pd
import pytest

from archray.files import Folder


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_reads_back_what_it_wrote(tmp_path, scheme):
    folder = Folder(f"{scheme}{tmp_path}") / "run" / "stage"
    table = pd.DataFrame({"architecture": ["a", "b"], "value": [1.5, math.nan]})
    folder.write_json("a.json", {"ü": [1, None]})
    folder.write_parquet("b.parquet", table)
    assert folder.read_json("a.json") == {"ü": [1, None]}
    pd.testing.assert_frame_equal(folder.read_parquet("b.parquet"), table)
    assert folder.files() == ["a.json", "b.parquet"]
    assert (tmp_path / "run" / "stage" / "b.parquet").is_file()
    assert Folder(f"{scheme}{tmp_path}").folders() == ["run"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    folder = Folder(tmp_path)
    folder.write_bytes("a", b"old")
    with pytest.raises(TypeError):
        folder.write_bytes("a", "text, not bytes")
    assert folder.read_bytes("a") == b"old"
    assert folder.files() == ["a"], "a temporary file is not one of the folder's files"


def test_existence(tmp_path):
    folder = Folder(tmp_path / "new")
    assert not folder.exists() and folder.is_empty() and folder.files() == [] == folder.folders()
    folder.write_bytes("a", b"")
    assert folder.exists() and folder.exists("a") and not folder.exists("b") and not folder.is_empty()
    folder.remove()
    assert not folder.exists()
