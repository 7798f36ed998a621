#!/usr/bin/env bash
# docs_test.sh finds every kind of fault in a page, and nothing in a page without faults.
# usage: docs_catches_test.sh ROOT BIN_DIR DOCS_TEST
set -euo pipefail
root=$1 bin=$2 check=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/right.md" <<'PAGE'
# A page: right
`train.epochs`, `train.epochs=3`, `--resume`, `configs/cora_gcn.json`, [a page](right.md), `frugal data list`.
[Here](#a-page-right), [there](right.md#a-page-right), `make_task.cpp`.
```python
run("configs/cora_gcn.json")
```
```sh run
frugal --version   # a comment
```
```text
frugal ...
```
```sh
frugal train configs/cora_gcn.json --set train.epochs=3 \
  --set seed=2 --out runs/x
```
```json
{"train": {"epochs": 3}}
```
PAGE
bash "$check" "$root" "$bin" "$work/right.md" || { echo "a page without faults fails"; exit 1; }

count=0
expect() {  # MESSAGE PAGE
  printf '%b' "$2" >"$work/wrong.md"
  if out=$(bash "$check" "$root" "$bin" "$work/wrong.md"); then echo "passes: $2"; exit 1; fi
  grep -q -e "$1" <<<"$out" || { printf 'expected "%s" for\n%b\ngot\n%s\n' "$1" "$2" "$out"; exit 1; }
  count=$((count + 1))
}
expect 'no such key: train.epoch' '`train.epoch` is no key'
expect 'no such option: --resum' '`--resum` is no option'
expect 'no such file: configs/none.json' '`configs/none.json`'
expect 'a link to nothing: none.md' '[a page](none.md)'
expect 'a link to no heading: #nowhere' '# A page\n[here](#nowhere)'
expect 'a link to no heading: right.md#nowhere' '[there](right.md#nowhere)'
expect 'no such file: make_nothing.cpp' '`make_nothing.cpp`'
expect 'no such file: configs/none.json' '```python\nrun("configs/none.json")\n```\n'
expect 'no such command: frugal trian' '```sh\nfrugal trian configs/cora_gcn.json\n```\n'
expect 'frugal train has no option --output' '```sh\nfrugal train configs/cora_gcn.json --output x\n```\n'
expect 'frugal train has no option --output' '```sh\nmpirun -np 2 frugal train configs/cora_gcn.json --output x\n```\n'
expect 'no such key: distributed.bucket' '`distributed.bucket` is no key'
expect 'train.epoch' '```sh\nfrugal train configs/cora_gcn.json --set train.epoch=3\n```\n'
expect 'no such file: configs/none.json' '```sh\nfrugal train configs/none.json\n```\n'
expect 'compression.none' '```sh\nfrugal bench step --variant "a: compression.none=1"\n```\n'
expect 'no such program: tools/none.sh' '```sh\ntools/none.sh\n```\n'
expect 'no such preset: none' '```sh\ncmake --preset none\n```\n'
expect 'train.epoch' '```json\n{"train": {"epoch": 3}}\n```\n'
! command -v python3 >/dev/null || expect 'Python does not parse' '```python\nimport frugal as\n```\n'
expect 'the commands failed' '```sh run\nfrugal inspect none\n```\n'
expect 'not printed: gurfal' '```sh run\nfrugal --version\n```\n\n```text\ngurfal ...\n```\n'
echo "$count faults found"
