"""Files of prompts, one a line."""

import pytest

from shared.errors import UsageError
from shared.steering.prompt_list import read_pairs, read_prompts


def test_blank_lines_and_remarks_are_no_prompts(tmp_path):
    (tmp_path / "good").write_text("# a remark\n\n  first \nsecond # not a remark\r\n\t\nthird\n")
    (tmp_path / "bad").write_text("one\ntwo")
    assert read_prompts(tmp_path / "good") == ["first", "second # not a remark", "third"]
    assert read_pairs(tmp_path / "good", tmp_path / "bad") == [
        ("first", "one"),
        ("second # not a remark", "two"),
    ]


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
