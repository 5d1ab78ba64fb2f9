"""The two formats of vectors: what is written is read, and each fault is told with its line."""

import pytest

from shared.errors import UsageError
from shared.evaluation.local_vectors import LocalCandidate, LocalCase, local_text, read_local
from shared.evaluation.official_vectors import (
    Candidate,
    OfficialCase,
    OfficialStep,
    official_text,
    read_official,
)

OFFICIAL = [
    "# a comment",
    "case fact 4096 2 prompts/fact.txt",
    "step 0 416c 2",
    "top 416c -0.125",
    "top 7a -3.5",
    "",
    "step 1 2e 0",
    "end",
    "case other 16384 1 b.txt",
    "step 0 e28082 1",
    "top e28082 -1e-06",
    "end",
]
LOCAL = [
    "# a comment",
    "case story text 5000 4096 story.txt 3",
    "top 0 17 12.5",
    "top 1 4 11.25",
    "top 2 129279 -3",
    "end",
    "case hi chat 100 12 hi.txt 1",
    "top 1 5 1.5",
    "end",
]


def _written(folder, lines):
    path = folder / "x.vec"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
    return path


def test_official_cases(tmp_path):
    cases = read_official(_written(tmp_path, OFFICIAL))
    steps = (OfficialStep(b"Al", (Candidate(b"Al", -0.125), Candidate(b"z", -3.5))), OfficialStep(b".", ()))
    assert cases[0] == OfficialCase("fact", 4096, "prompts/fact.txt", steps)
    assert cases[1].steps[0].selected == "\u2002".encode()
    (tmp_path / "again.vec").write_text(official_text(cases, "ours"))
    assert read_official(tmp_path / "again.vec") == cases


def test_local_cases_whose_ranks_count_from_0_or_1(tmp_path):
    cases = read_local(_written(tmp_path, LOCAL))
    top = (LocalCandidate(17, 12.5), LocalCandidate(4, 11.25), LocalCandidate(129279, -3.0))
    assert cases[0] == LocalCase("story", "text", 5000, 4096, "story.txt", top)
    assert (cases[1].mode, cases[1].top) == ("chat", (LocalCandidate(5, 1.5),))
    (tmp_path / "again.vec").write_text(local_text(cases, "ours"))
    assert read_local(tmp_path / "again.vec") == cases


@pytest.mark.parametrize(("read", "lines"), [(read_official, OFFICIAL), (read_local, LOCAL)])
def test_a_file_cut_off_between_any_two_lines_is_refused_or_holds_whole_cases(tmp_path, read, lines):
    whole = [index + 1 for index, line in enumerate(lines) if line == "end"]
    for end in range(len(lines)):
        path = _written(tmp_path, lines[:end])
        if end in whole:
            assert len(read(path)) == 1
            continue
        with pytest.raises(UsageError, match=r"ends inside .*: it is cut off"):
            read(path)


def _changed(lines, number, line):
    return [*lines[:number], line, *lines[number + 1 :]]


@pytest.mark.parametrize(
    ("number", "line", "fault"),
    [
        (1, "case fact 4096 2", "line 2: expected `case` and 4 words"),
        (1, "case fact 0 2 p", "line 2: the context must be a number from 1"),
        (1, "case fact 4096 17 p", "line 2: the number of steps must be a number from 1 to 16"),
        (
            1,
            "case fact 4096 3 p",
            "line 8: expected `step` and 3 words in step 2 of case 'fact'",
        ),
        (1, "case fact 4096 1 p", "line 7: expected `end` and 0 words in case 'fact', found 'step 1 2e 0'"),
        (1, "case fact\x1b[2J 4096 2 p", "holds characters that cannot be shown"),
        (2, "step 1 416c 2", "line 3: the number of the step must be a number from 0 to 0"),
        (2, "step 0 416c 3", "line 7: expected `top` and 2 words in step 0 of case 'fact'"),
        (2, "step 0 416c 1", "line 5: expected `step` and 3 words in step 1 of case 'fact'"),
        (2, "step 0 416c 33", "the number of candidates must be a number from 0 to 32"),
        (2, "step 0 416 2", "a token must be 1 to 128 bytes in hexadecimal, not '416'"),
        (2, f"step 0 {'41' * 129} 2", "a token must be 1 to 128 bytes"),
        (3, "top 416c nan", "the log probability must be a finite number, not 'nan'"),
        (3, "top 416c -0.1 more", "expected `top` and 2 words"),
        (3, "top zz -0.1", "a token must be"),
        (8, "case fact 16384 1 b.txt", "line 12: the id 'fact' occurs twice"),
        (8, "\udcff", "line 9: it is not UTF-8"),
    ],
)
def test_faults_of_official_files(tmp_path, number, line, fault):
    with pytest.raises(UsageError) as refused:
        read_official(_written(tmp_path, _changed(OFFICIAL, number, line)))
    assert fault in str(refused.value)


@pytest.mark.parametrize(
    ("number", "line", "fault"),
    [
        (1, "case story essay 5000 4096 story.txt 3", "the mode must be text, rendered, chat, not 'essay'"),
        (1, "case story text 5000 5000 story.txt 3", "the frontier must be a number from 1 to 4999"),
        (1, "case story text 5000 4096 story.txt 4", "line 6: expected `top` and 3 words"),
        (1, "case story text 5000 4096 story.txt 2", "line 5: expected `end` and 0 words"),
        (1, "case story text 5000 4096 story.txt 0", "the number of candidates must be a number from 1"),
        (2, "top 2 17 12.5", "the first rank must be a number from 0 to 1"),
        (3, "top 2 4 11.25", "line 4: the rank must be a number from 1 to 1"),
        (3, "top 1 17 11.25", "a token occurs twice in case 'story'"),
        (3, "top 1 -4 11.25", "the token must be a number"),
        (3, "top 1 4 inf", "the logit must be a finite number"),
    ],
)
def test_faults_of_local_files(tmp_path, number, line, fault):
    with pytest.raises(UsageError) as refused:
        read_local(_written(tmp_path, _changed(LOCAL, number, line)))
    assert fault in str(refused.value)
