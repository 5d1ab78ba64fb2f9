"""The manifest of scoring: what is read, and how each fault is told."""

import pytest

from shared.errors import UsageError
from shared.evaluation.manifest import ScoreCase, read_manifest


def _manifest(folder, *lines, end="\n"):
    (folder / "p.txt").write_bytes(b"What?\n")
    (folder / "c.txt").write_bytes("Thé\n".encode())
    (folder / "empty.txt").write_bytes(b"")
    path = folder / "manifest.tsv"
    path.write_bytes(end.join([*lines, ""]).encode("utf-8", "surrogateescape"))
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_cases_come_in_order_with_their_texts_unchanged(tmp_path, end):
    path = _manifest(
        tmp_path, "# id prompt continuation", "", "b\tp.txt\tc.txt", "a\tp.txt\tp.txt\tgone.json", end=end
    )
    assert read_manifest(path) == [
        ScoreCase("b", b"What?\n", "Thé\n".encode()),
        ScoreCase("a", b"What?\n", b"What?\n"),
    ]


def test_files_may_be_named_from_the_working_folder(tmp_path, monkeypatch):
    inner = tmp_path / "lists"
    inner.mkdir()
    _manifest(tmp_path)
    (inner / "m.tsv").write_text("a\tp.txt\tc.txt\n")
    monkeypatch.chdir(tmp_path)
    assert [case.id for case in read_manifest(inner / "m.tsv")] == ["a"]


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["a p.txt c.txt"], "line 1: expected an id, a prompt file and a continuation file"),
        (["# x", "a\tp.txt"], "line 2: expected an id"),
        (["a\tp.txt\tc.txt\tr\tmore"], "line 1: expected an id"),
        (["a\t \tc.txt"], "line 1: expected an id"),
        (["a\tp.txt\tc.txt", "a\tp.txt\tc.txt"], "line 2: the id 'a' occurs twice"),
        (["a\x1b[2J\tp.txt\tc.txt"], "holds characters that cannot be shown"),
        (["a\tgone.txt\tc.txt"], "line 1: the prompt gone.txt: No such file or directory"),
        (["a\tp.txt\tempty.txt"], "line 1: the continuation empty.txt is empty"),
        (["a\tp.txt\t."], "it is no regular file"),
        (["# only"], "lists no case"),
        (["a\tp.txt\tc.txt", "\udcff"], "line 2: it is not UTF-8"),
    ],
)
def test_a_fault_is_told_with_its_line(tmp_path, lines, fault):
    with pytest.raises(UsageError) as refused:
        read_manifest(_manifest(tmp_path, *lines))
    assert fault in str(refused.value)
    assert "\n" not in str(refused.value)
