"""What the HTTP server adds to an engine that costs nothing, and what it can carry.

Run it with `python bench/serve.py [--rounds 5] [--peer PYTHON] [--quick]`. The scripted engine plays the
model, so all time is the server's. With `--peer PYTHON` (an interpreter that has mlx-lm) the same work goes
to `mlx_lm.server` with a model of one tiny layer, in the same run, round by round; what that model takes
without a server is measured too. `--quick` proves only that all of it runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.serve_figures import FULL, QUICK, Figures, Work, best, measure
from bench.serve_servers import Server, our_server, peer_server

_ROWS = {
    "first_ms": "first token, ms",
    "stream_rate": "one stream, tokens/s",
    "streams_rate": "16 streams together, tokens/s",
    "answers_rate": "short answers/s, 16 clients",
    "idle_kib": "an idle connection, KiB",
}


def run(servers: list[Server], rounds: int, work: Work) -> dict[str, Figures]:
    """The best figures of each server."""
    seen: dict[str, list[Figures]] = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            seen[server.name].append(measure(server, work))
    return {name: best(figures) for name, figures in seen.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="each figure is the best of so many rounds")
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter that has mlx-lm")
    parser.add_argument("--quick", action="store_true", help="as little as possible")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        servers = [our_server(Path(folder))]
        try:
            if options.peer:
                servers.append(peer_server(Path(folder), options.peer))
            figures = run(servers, options.rounds, QUICK if options.quick else FULL)
        finally:
            for server in servers:
                server.stop()
    report(servers, figures)


def report(servers: list[Server], figures: dict[str, Figures]) -> None:
    """Print a table; with a peer also how many times our figure each of its figures is."""
    ratios = ["peer / ours"] if len(servers) == 2 else []
    _row("", [*(server.name for server in servers), *ratios])
    _row("engine alone: first token, ms", [f"{server.bare.first_ms:.2f}" for server in servers])
    _row("engine alone: tokens/s", [f"{server.bare.rate:.0f}" for server in servers])
    for field, title in _ROWS.items():
        values = [float(getattr(figures[server.name], field)) for server in servers]
        ratio = [f"{values[1] / values[0]:.2f}"] if ratios and values[0] else []
        _row(title, [*(f"{value:.2f}" for value in values), *ratio])
    added = [figures[server.name].first_ms - server.bare.first_ms for server in servers]
    _row("the server adds to the first token, ms", [f"{value:.2f}" for value in added])


def _row(title: str, values: list[str]) -> None:
    print(f"{title:46}" + "".join(f"{value:>16}" for value in values))


if __name__ == "__main__":
    main()
