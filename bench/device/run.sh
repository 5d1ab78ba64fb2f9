#!/bin/sh
# Everything that is to be known of this backend on one NVIDIA GPU, in less than ten minutes and without a
# network: see docs/cuda.md. Options are those of `python -m bench.device --help`.
set -eu
cd "$(dirname "$0")/../.."
for python in "${PYTHON:-}" .venv/bin/python python3 python; do
    if [ -n "$python" ] && command -v "$python" > /dev/null 2>&1; then
        exec "$python" -m bench.device "$@"
    fi
done
echo "no Python is installed here: 3.11 or later is needed (or name one: PYTHON=/path/to/python $0)" >&2
exit 1
