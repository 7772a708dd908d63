#!/usr/bin/env bash
# Runs the examples of the README on a finished run. Usage: docs/examples.sh RUN
set -euo pipefail
run=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cosplay() { cargo run --release --quiet -- "$@"; }

cosplay plan specs/2048.yaml >/dev/null
cosplay plan specs/2048.yaml --mermaid >/dev/null
cosplay plan specs/2048.yaml --set graph.rollouts.starts=2 >/dev/null
cosplay schema >/dev/null
cosplay ops rollout >/dev/null
cosplay envs 2048 >/dev/null

# banks: look, trace, rebuild
cosplay bank "$run"
skill=$(cosplay query "$run" "SELECT skill FROM skills WHERE state = 'active' ORDER BY step DESC, skill LIMIT 1" --format csv | tail -n 1)
cosplay bank "$run" "$skill" >/dev/null
cosplay bank why "$run" "$skill"
cosplay bank diff "$run" 5 15 >/dev/null
cosplay rebuild "$run" --out "$out/rebuilt" --quiet
episode=$(cosplay query "$run" "SELECT episode FROM episodes WHERE node = 'rollouts' ORDER BY episode LIMIT 1" --format csv | tail -n 1)
cosplay rebuild "$run" --without "$episode" --at 3 --out "$out/without" --quiet

# tables
cosplay query "$run" "SELECT step, AVG(return) AS mean FROM episodes WHERE node = 'rollouts' GROUP BY step ORDER BY step LIMIT 3"
cosplay query "$run" "SELECT kind, verdict, COUNT(*) AS n FROM bank_events GROUP BY kind, verdict ORDER BY kind, verdict"

# policy
cosplay eval "$run" --episodes 16 --validation 8
cosplay export adapters "$run" --out "$out/adapters"
