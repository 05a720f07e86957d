#!/bin/sh
# The main job, end to end, on real input: a transcript becomes a verified Summary and quoted Knowledge, computed by the
# built-in model in a worker process, out of a SQLite database below .demo/. TRANSCRIPT=PATH shows it on one of yours.
set -eu
cd "$(dirname "$0")/.."

transcript=$(realpath "${TRANSCRIPT:-ops/demo/claude-code.jsonl}")
rm -rf .demo
mkdir -p .demo/workspace

emelex() {
    .venv/bin/emelex --home .demo/home -C .demo/workspace "$@"
}

show() {
    printf '\n\033[1m$ emelex %s\033[0m\n' "$*"
    emelex "$@"
}

show import auto "$transcript"
show memory work
show memory sessions list
session=$(emelex memory sessions list --json | .venv/bin/python -P -c 'import json, sys; print(json.loads(sys.stdin.readline())["id"])')
show memory sessions show "$session" |
    awk -v most="${LINES_SHOWN:-60}" 'NR <= most; NR == most + 1 { print "… (LINES_SHOWN=1000 shows more)" }'
show memory knowledge list
key=$(emelex memory knowledge list --json | .venv/bin/python -P -c 'import json, sys; print(json.loads(sys.stdin.readline())["key"])')
show memory knowledge show "$key"
show memory status
printf '\nEverything is below .demo/; look around with: .venv/bin/emelex --home .demo/home -C .demo/workspace memory …\n'
