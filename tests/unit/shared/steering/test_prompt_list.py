"""Files of prompts, one a line."""

import pytest

from shared.errors import UsageError
from shared.steering.prompt_list import read_pairs, read_prompts


def test_blank_lines_and_remarks_are_no_prompts(tmp_path):
    (tmp_path / "good").write_text("# a remark\n\n  first \nsecond # not a remark\r\n\t\nthird\n")
    (tmp_path / "bad").write_text("one\ntwo")
    assert read_prompts(tmp_path / "good") == ["first", "second # not a remark", "third"]
    pairs = [("first", "one"), ("second # not a remark", "two")]
    assert read_pairs(tmp_path / "good", tmp_path / "bad") == (pairs, 1)
    swapped = [(bad, good) for good, bad in pairs]
    assert read_pairs(tmp_path / "bad", tmp_path / "good") == (swapped, 1)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbf# a remark\nfirst\n")
    assert read_prompts(tmp_path / "list") == ["first"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "holds no prompt"),
        (b"# only\n\n", "holds no prompt"),
        (b"ok\n\xff\n", "line 2: it is not UTF-8"),
    ],
)
def test_what_is_no_list_of_prompts(tmp_path, content, fault):
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(UsageError, match=fault):
        read_prompts(tmp_path / "list")
