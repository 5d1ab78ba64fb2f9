"""Real agents at work: each runs a command, edits a file and goes on with the conversation later.

`make test-clients` runs these; they need npm and its registry.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support.agents import AGENTS, Agent, Workplace, install, serving

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    if reason := install():
        pytest.skip(reason)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_an_agent_runs_a_command_edits_a_file_and_goes_on(agent: Agent, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "greeting.txt").write_text("hello\n")
    script = (agent.folder / "script.json").read_text().replace("$WORKSPACE", str(work))
    with serving(script, tmp_path) as server:
        assert server.url is not None
        place = Workplace.prepare(agent, server.url, tmp_path)
        first = place.run(agent.first, "Run the echo tool and change the greeting")
        assert (work / "said.txt").read_text() == "hello-from-tool\n"
        assert (work / "greeting.txt").read_text() == "goodbye\n"
        assert "The tool said hello-from-tool and the file says goodbye." in first
        second = place.run(agent.more, "And once more")
        assert "Gladly, a second time." in second

    assert len(server.turns) == script.count("</think>") - script.count('"match"')
    for before, after in itertools.pairwise(server.turns):
        # All that was said before is there; only what is new was computed.
        assert after.reused >= before.live, server.turns
    assert not [line for line in server.lines if line["level"] == "error" or "Traceback" in line["text"]]
