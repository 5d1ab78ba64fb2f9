"""Other spellings of options become ours, and only where an option stands."""

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from apps.aliases import ALIASES, rewrite
from apps.later import REFUSED
from shared.errors import UsageError


def _command():
    application = typer.Typer(add_completion=False)

    @application.command()
    def run(
        prompt: str = typer.Option("", "-p", "--prompt"),
        temp: float = 1.0,
        backend: str = "auto",
        json: bool = False,
        resume: str | None = None,
    ):
        pass

    return typer.main.get_command(application)


COMMAND = _command()


@pytest.mark.parametrize(
    ("given_words", "expected"),
    [
        (["--temperature", "0.5"], ["--temp", "0.5"]),
        (["--temperature=0.5"], ["--temp=0.5"]),
        (["--metal"], ["--backend", "mlx"]),
        (["--cuda", "--cpu"], ["--backend", "cuda", "--backend", "reference"]),
        (["-p", "--metal"], ["-p", "--metal"]),
        (["--temperature", "--metal", "--metal"], ["--temp", "--metal", "--backend", "mlx"]),
        (["--json", "--metal"], ["--json", "--backend", "mlx"]),
        (["--", "--metal"], ["--", "--metal"]),
        (["--metal=1"], ["--metal=1"]),
        # The command has no --power: the parser reports the word that was typed.
        (["--power-percent", "5"], ["--power-percent", "5"]),
        (["-p"], ["-p"]),
        # The value of this one may be left out.
        (["--resume"], ["--resume", "newest"]),
        (["--resume", "--json"], ["--resume", "newest", "--json"]),
        (["--resume", "--metal"], ["--resume", "newest", "--backend", "mlx"]),
        (["--resume", "--", "x"], ["--resume", "newest", "--", "x"]),
        (["--resume", "ab12", "--json"], ["--resume", "ab12", "--json"]),
        (["--resume=ab12"], ["--resume=ab12"]),
        (["-p", "--resume"], ["-p", "--resume"]),
    ],
)
def test_rewrite(given_words, expected):
    assert rewrite(given_words, COMMAND) == expected


@given(
    st.lists(st.sampled_from(["a", "-p", "--json", "--temp", "0", "--backend", "--", "-x", "--temp=1", "="]))
)
def test_words_that_are_no_alias_are_left_alone(words):
    assert rewrite(words, COMMAND) == words


def test_nested_commands_know_their_options_too():
    application = typer.Typer(add_completion=False)

    @application.command()
    def plot(temp: float = 1.0):
        pass

    @application.command()
    def other():
        pass

    group = typer.main.get_command(application)
    assert rewrite(["plot", "--temperature", "2"], group) == ["plot", "--temp", "2"]


@pytest.mark.parametrize("word", [*REFUSED, "--mtp-draft-tokens", "--mtp=x"])
def test_an_option_whose_feature_is_not_here_is_refused(word):
    with pytest.raises(UsageError, match=f"^{word.partition('=')[0]}: "):
        rewrite([word, "1"], COMMAND)


def test_a_value_that_looks_like_a_refused_option_is_a_value():
    assert rewrite(["-p", "--mtp"], COMMAND) == ["-p", "--mtp"]


def test_no_alias_is_also_canonical():
    canonical = {words[0] for words in ALIASES.values()}
    assert not canonical & ALIASES.keys()
