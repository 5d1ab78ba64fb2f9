"""What a reply looks like on a terminal and in a file."""

from apps.chat.reply_printer import ReplyPrinter, printable
from shared.text.events import TextDelta, ThinkingDelta
from tests.support import consoles


def _printed(target, *events):
    printer = ReplyPrinter(target.console)
    for event in events:
        printer.show([event])
    printer.end_line()
    return target.text


def test_thinking_is_dim_and_ends_its_line_on_a_terminal():
    printed = _printed(
        consoles.terminal(),
        ThinkingDelta("Let me "),
        ThinkingDelta("see."),
        TextDelta("Four"),
        TextDelta("."),
    )
    assert printed == "\x1b[90mLet me \x1b[0m\x1b[90msee.\x1b[0m\nFour.\n"


def test_without_colour_thinking_is_plain():
    printed = _printed(consoles.terminal(colors=False), ThinkingDelta("Hm."), TextDelta("Yes."))
    assert printed == "Hm.\nYes.\n"


def test_no_empty_line_where_thinking_ended_its_own():
    assert _printed(consoles.file(), ThinkingDelta("Hm.\n"), TextDelta("Yes.\n")) == "Hm.\nYes.\n"


def test_a_file_gets_the_text_as_it_is():
    text = "  long " * 40 + "[bold]x[/bold] :smile: \x1b[31m \x07\ttab"
    assert _printed(consoles.file(), TextDelta(text)) == text + "\n"


def test_a_reply_cannot_drive_the_terminal():
    printed = _printed(consoles.terminal(), TextDelta("a\x1b]0;title\x07b\x9b31m\r\n[red]c[/red]"))
    assert printed == "a]0;titleb31m\n[red]c[/red]\n"


def test_long_lines_are_left_to_the_terminal():
    assert _printed(consoles.terminal(), TextDelta("word " * 40)) == "word " * 40 + "\n"


def test_nothing_said_prints_nothing():
    assert _printed(consoles.terminal()) == ""


def test_printable_keeps_text_of_every_script():
    assert printable("a\tb\né中🎉\u200d\x00") == "a\tb\né中🎉\u200d"
