"""docs/flags.md says what the commands say."""

import re

from apps.aliases import ALIASES
from apps.cli import COMMANDS, load_command
from apps.flags_table import FLAGS_PAGE, flags_page
from apps.later import REFUSED


def test_the_page_is_current():
    assert FLAGS_PAGE.read_text(encoding="utf-8") == flags_page(), "run `python -m apps.flags_table`"


def test_every_alias_leads_to_an_option_or_to_a_refusal():
    page = flags_page()
    for alias, words in ALIASES.items():
        if words[0] in REFUSED:
            continue
        assert re.search(rf"^\| `{words[0]}`.*`{alias}`", page, re.MULTILINE), alias


def test_settings_shared_by_commands_have_one_variable():
    variables = {}
    for name in COMMANDS:
        for parameter in load_command(name).params:
            envvar = parameter.envvar
            if envvar:
                first = envvar if isinstance(envvar, str) else envvar[0]
                variables.setdefault(parameter.opts[0], set()).add(first)
                assert first.startswith(("DS4_", "HF_")), (name, first)
    assert all(len(found) == 1 for found in variables.values()), variables
