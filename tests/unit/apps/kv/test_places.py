"""Which folders are looked through, and which file a word means."""

import pytest

from apps.kv.places import Place, find_file, places
from shared.errors import CacheFileError, UsageError

A, B = "ab" + "0" * 38 + ".kv", "ac" + "0" * 38 + ".kv"


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    for name in (A, B, "sysprompt.kv", A + ".sum", A + ".tmp.12", "notes.txt", "ab.kv"):
        (folder / name).touch()
    (folder / ("ad" + "0" * 38 + ".kv")).mkdir()
    return Place(folder, "named folder")


def test_only_what_is_named_like_a_cache_file_counts(place):
    assert [path.name for path in place.files()] == [A, B, "sysprompt.kv"]


def test_all_folders_of_ours_or_the_named_one(folders, tmp_path):
    assert places(None) == []
    for root, name in zip(folders, ("0123456789abcdef", "fedcba9876543210"), strict=True):
        (root / name).mkdir(parents=True)
        (root / "a-file").touch()
    assert places(None) == [
        Place(folders[0] / "0123456789abcdef", "prompt states"),
        Place(folders[1] / "fedcba9876543210", "chat sessions"),
    ]
    assert places(tmp_path) == [Place(tmp_path, "named folder")]
    with pytest.raises(UsageError, match="no such folder"):
        places(tmp_path / "missing")


def test_a_word_is_a_path_or_the_start_of_one_name(place):
    assert find_file(str(place.folder / "notes.txt"), []) == place.folder / "notes.txt"
    for word in ("ab", "AB0", A, A.removesuffix(".kv")):
        assert find_file(word, [place]).name == A
    with pytest.raises(UsageError, match="fits 2 files"):
        find_file("a", [place])


def test_a_word_that_means_nothing(place):
    for word in ("af", "sysprompt", "no-hex", "", "ab" + "0" * 39):
        with pytest.raises(CacheFileError, match="no cache file"):
            find_file(word, [place])
    with pytest.raises(CacheFileError, match="is a folder"):
        find_file(str(place.folder), [place])
