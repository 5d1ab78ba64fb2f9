"""Clients of all kinds at once, a tenth of whom leave: the short form of the load test."""

from __future__ import annotations

import asyncio
import dataclasses

from apps.serve.settings import ServerSettings
from tests.support.api_server import QUICK, serve_script, wait_for
from tests.support.load import load_script, run_load


def test_every_answer_is_exact_and_nothing_is_left_behind() -> None:
    # Of a peer that went without a word a connection is left until it counts as idle.
    timing = dataclasses.replace(QUICK, idle_connection=2.0)
    settings = ServerSettings(sessions=3, max_queue=12, timing=timing)
    with serve_script(load_script(), settings=settings) as server:
        asyncio.run(run_load(server.address, clients=1, requests=1, seed=0))
        wait_for(lambda: server.connections == 0, 20)
        before = server.tasks
        load = asyncio.run(run_load(server.address, clients=16, requests=160, seed=1))
        assert load.wrong == []
        assert load.answered + load.left == 160
        assert load.left
        server.wait_idle()
        wait_for(lambda: server.requests_in_flight == 0 and server.connections == 0, 20)
        wait_for(lambda: server.tasks <= before)
        assert server.worker.refusal() is None
        assert "error" not in server.log
