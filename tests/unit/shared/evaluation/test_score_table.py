"""The table of scores and the comparison of two."""

import math

import pytest

from shared.errors import UsageError
from shared.evaluation.score_table import HEADER, compare, read_table, row, summarise
from shared.evaluation.teacher_forcing import CaseScore


def _score(name, nll, tokens=10, first=True, matched=3):
    return CaseScore(name, 7, tokens, nll, first, matched)


def _table(folder, *lines):
    path = folder / "t.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_what_is_written_is_read_again(tmp_path):
    scores = [_score("a", 1.25), _score("b c", math.inf, tokens=4, first=False, matched=0)]
    assert row(scores[0]) == "a\t7\t10\t1.250000000\t0.125000000\t1\t3"
    assert read_table(_table(tmp_path, HEADER, *map(row, scores))) == scores


def test_the_summary_weighs_by_tokens():
    summary = summarise([_score("a", 1.0, tokens=10), _score("b", 3.0, tokens=30, first=False, matched=0)])
    assert summary.line() == "cases=2 tokens=40 avg_nll=0.100000000 first_match=1 avg_lcp=1.500"


def test_a_comparison_is_made_on_the_common_ids():
    old = [_score("a", 2.0), _score("b", 1.0, first=False), _score("c", 1.0), _score("only old", 9.0)]
    new = [_score("c", 1.0 + 5e-9), _score("b", 3.0, matched=5), _score("a", 1.0), _score("only new", 9.0)]
    comparison = compare(old, new)
    figures = comparison.figures()
    assert (figures["cases"], figures["tokens"]) == (3, 30)
    assert figures["old_avg_nll"] == pytest.approx(4 / 30)
    assert figures["delta_new_minus_old"] == pytest.approx(1 / 30)
    assert figures["relative_nll_change"] == pytest.approx(0.25)
    assert figures["case_wins_new_old_ties"] == [1, 1, 1]
    assert figures["first_token_matches_old_new"] == [2, 3]
    assert figures["avg_greedy_lcp_old_new"] == pytest.approx([3, 11 / 3])
    assert [pair.old.id for pair in comparison.best(for_new=True)] == ["a"]
    assert [pair.old.id for pair in comparison.best(for_new=False)] == ["b"]


def test_the_best_cases_are_the_clearest_eight():
    old = [_score(f"case {number}", 10.0) for number in range(12)]
    new = [_score(f"case {number}", 10.0 - number % 6) for number in range(12)]
    best = compare(old, new).best(for_new=True)
    assert [pair.old.id for pair in best] == [f"case {n}" for n in (11, 5, 10, 4, 3, 9, 2, 8)]


def test_lost_cases_do_not_spoil_the_others():
    comparison = compare([_score("a", math.inf), _score("b", 1.0)], [_score("a", math.inf), _score("b", 2.0)])
    assert comparison.figures()["case_wins_new_old_ties"] == [0, 1, 1]
    assert comparison.figures()["delta_new_minus_old"] == 0.0


def test_other_texts_are_not_compared():
    with pytest.raises(UsageError, match="'a' has 7 \\+ 10 tokens in one table and 7 \\+ 11 in the other"):
        compare([_score("a", 1.0)], [_score("a", 1.0, tokens=11)])
    with pytest.raises(UsageError, match="no case in common"):
        compare([_score("a", 1.0)], [_score("b", 1.0)])


@pytest.mark.parametrize(
    "line",
    [
        "a\t7\t10\t1.0\t0.1\t1",
        "\t7\t10\t1.0\t0.1\t1\t3",
        "a\t0\t10\t1.0\t0.1\t1\t3",
        "a\t7\t0\t1.0\t0.1\t1\t0",
        "a\t7\t10\tnan\t0.1\t1\t3",
        "a\t7\t10\t-1.0\t0.1\t1\t3",
        "a\t7\t10\t1.0\t0.1\tyes\t3",
        "a\t7\t10\t1.0\t0.1\t1\t11",
        "a\t7\tten\t1.0\t0.1\t1\t3",
        "a\x1b\t7\t10\t1.0\t0.1\t1\t3",
        "",
    ],
)
def test_a_row_that_is_none_is_told_with_its_line(tmp_path, line):
    with pytest.raises(UsageError, match="line 3: these are not the columns"):
        read_table(_table(tmp_path, HEADER, row(_score("x", 1.0)), line))


def test_another_file_and_a_double_id_are_told(tmp_path):
    with pytest.raises(UsageError, match="line 1: expected the columns id prompt_tokens"):
        read_table(_table(tmp_path, "something"))
    with pytest.raises(UsageError, match="line 3: the id 'x' occurs twice"):
        read_table(_table(tmp_path, HEADER, row(_score("x", 1.0)), row(_score("x", 1.0))))
