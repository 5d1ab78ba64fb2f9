"""The `ds4` command itself: dispatch, exit codes, one line per failure."""

import os
import subprocess
import sys
import types

import pytest

from apps import cli
from shared.errors import Ds4Error

MAIN = "import sys; from apps.cli import main; sys.exit(main())"


def _ds4(arguments, *, script=MAIN, **keywords):
    keywords.setdefault("env", {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"})
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        **keywords,
    )


@pytest.fixture
def command(monkeypatch):
    """Replaces `ds4 chat` by a function of the test; returns a setter."""

    def install(function):
        module = types.ModuleType("stand_in")
        module.command = function
        monkeypatch.setitem(sys.modules, "stand_in", module)
        monkeypatch.setitem(cli.COMMANDS, "chat", cli.Command("stand_in:command", "stands in"))

    return install


def test_help_names_every_command_and_loads_nothing_heavy():
    script = (
        "import sys\nfrom apps.cli import main\nassert main(['--help']) == 0\n"
        "heavy = {'typer', 'click', 'rich', 'numpy', 'mlx', 'starlette', 'prompt_toolkit', 'pydantic'}\n"
        "print('loaded', sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("loaded []\n")
    width = max(map(len, cli.COMMANDS)) + 2
    for name, listed in cli.COMMANDS.items():
        assert f"  {name:<{width}}{listed.help}\n" in done.stdout


def test_no_command_loads_numbers_or_a_server_to_show_its_options():
    script = (
        "import sys\nfrom apps.cli import main\nassert main(['chat', '--help']) == 0\n"
        "print('loaded', sorted({'numpy', 'mlx', 'starlette', 'prompt_toolkit'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("loaded []\n")
    assert "--ctx" in done.stdout


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == "ds4 0.1.0\n"


def test_an_unknown_command_suggests_a_close_one(capsys):
    assert cli.main(["sreve"]) == 2
    assert capsys.readouterr().err.startswith("ds4: unknown command 'sreve': did you mean `ds4 serve`?")
    assert cli.main(["hello"]) == 2
    assert "commands are chat, serve, bench, pull, doctor" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--word", "x"], ["chat"], ["chat", "--word", "x"]])
def test_without_a_command_it_is_chat(command, capsys, arguments):
    def chat(word: str = "none") -> None:
        print(word)

    command(chat)
    assert cli.main(arguments) == 0
    assert capsys.readouterr().out == ("x\n" if "--word" in arguments else "none\n")


@pytest.mark.parametrize(
    ("failure", "code", "line"),
    [
        (Ds4Error("no such thing: do that"), 1, "ds4: no such thing: do that\n"),
        (
            FileNotFoundError(2, "No such file or directory", "a.json"),
            1,
            "ds4: a.json: No such file or directory\n",
        ),
        (MemoryError(), 1, "ds4: out of memory: lower --ctx or use a smaller model file\n"),
        (
            ZeroDivisionError("oops"),
            1,
            "ds4: internal error: ZeroDivisionError: oops (DS4_TRACEBACK=1 shows where)\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(command, capsys, failure, code, line):
    def chat() -> None:
        raise failure

    command(chat)
    assert cli.main(["chat"]) == code
    assert capsys.readouterr().err == line


def test_the_exit_code_of_a_command_is_passed_on(command):
    def chat() -> int:
        return 7

    command(chat)
    assert cli.main([]) == 7


def test_a_usage_error_is_one_line_with_exit_code_2(command, capsys):
    def chat(number: int = 1) -> None:
        raise AssertionError(number)

    command(chat)
    assert cli.main(["--number", "1x"]) == 2
    assert capsys.readouterr().err == "ds4: --number should be a valid integer (see `ds4 chat --help`)\n"
    assert cli.main(["--nope"]) == 2
    assert capsys.readouterr().err.startswith("ds4: No such option: --nope")


def test_a_usage_error_names_the_variable_that_caused_it(capsys, monkeypatch):
    monkeypatch.setenv("DS4_METAL_PREFILL_CHUNK", "x")
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == (
        "ds4: DS4_METAL_PREFILL_CHUNK should be a valid integer (see `ds4 doctor --help`)\n"
    )
    monkeypatch.delenv("DS4_METAL_PREFILL_CHUNK")
    monkeypatch.setenv("DS4_BACKEND", "foo")
    assert cli.main(["-p", "x"]) == 2
    assert capsys.readouterr().err.startswith("ds4: DS4_BACKEND: 'foo' is not one of 'auto', 'mlx'")


def test_a_usage_error_of_a_nested_command_points_to_its_own_help(capsys):
    assert cli.main(["bench", "plot"]) == 2
    assert capsys.readouterr().err.endswith("(see `ds4 bench plot --help`)\n")


def test_help_fills_the_width_and_gives_flags_no_type(capsys):
    assert cli.main(["chat", "--help"]) == 0
    shown = capsys.readouterr().out
    assert " The answer goes to standard output, everything else to standard error. " in shown
    assert "<bool>" not in shown.replace("--help    -h        <bool>", "")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor"], ["chat", "--help"]])
def test_a_full_disk_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        done = _ds4(arguments, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "ds4: No space left on device\n")


def test_output_that_nobody_takes_does_not_fail_again_at_the_very_end():
    script = (
        "import sys\nfrom apps import cli\nfrom shared.errors import Ds4Error\n"
        "def fail():\n    print('x', end='')\n    raise Ds4Error('oops')\n"
        "cli.help_text = fail\nsys.exit(cli.main(['--help']))"
    )
    with open("/dev/full", "w") as full:
        done = _ds4([], script=script, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (1, "ds4: oops\n")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_streams_closed_at_start_are_no_fault(closed):
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" doctor {closed}', sys.executable, MAIN],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("python " in done.stdout) is ("1>" not in closed)


def test_a_stream_that_lacks_a_character_shows_a_question_mark():
    script = "from apps import cli; cli.help_text = lambda: 'caf\\xe9'; cli.main(['--help'])"
    done = _ds4([], script=script, stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.stdout == "caf?\n"


def test_ctrl_c_after_the_end_tears_nothing(command):
    script = (
        "import signal, sys\nfrom apps import cli\nsys.argv = ['ds4', '--version']\ncli.main()\n"
        "signal.raise_signal(signal.SIGINT)"
    )
    done = _ds4([], script=script, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_foreign_package_named_shared_is_reported(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "__init__.py").write_text("")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from apps.cli import main; sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("ds4: another package named `shared` hides ours")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_leaves_is_no_error():
    script = "from apps.cli import main; import sys; sys.exit(main(['--help']))"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
