#!/usr/bin/env bash
# Compares the ids and texts of tokenizer.model files with those of SentencePiece (Debian's package sentencepiece, whose
# programs run outside ours). It trains models of both kinds in a temporary folder, with and without bytes for unknown
# characters, with tokens of one's own, and with several normalizers, on the files given. It needs node and python3; no
# test runs it. Exit status 1: an id or a text differs.
# usage: tools/piece_golden.sh FILE...     FILE: a text to train on, such as those of the data folder's text/
# FRUGAL_LAB names the program (build/release/bin/frugal-lab), TEXTS how many texts are made for each model (2000).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
lab=${FRUGAL_LAB:-$root/build/release/bin/frugal-lab}
[ $# -gt 0 ] || { sed -n '2,8s/^# //p' "$0"; exit 2; }
for tool in spm_train spm_encode spm_decode node python3; do
  command -v $tool >/dev/null || { echo "expected $tool: apt-get install sentencepiece nodejs python3"; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
head -q -c 2000000 "$@" | iconv -c -f utf-8 -t utf-8 >"$work/corpus"
# Lines of many scripts, so that the models know more than one.
mapfile -t files < <(git ls-files '*.md' '*.cpp' '*.json' | sed "s|^|$root/|")
echo '{"added_tokens": [], "model": {"vocab": {"a": 0}}}' >"$work/none.json"
node tools/tokenizer_golden.mjs texts "$work/none.json" 4000 |
  python3 -c 'import json, sys
for line in sys.stdin: print(json.loads(line).replace("\n", " "))' >>"$work/corpus"
cd "$work"

# compare NAME TRAINING-OPTION...
status=0
compare() {
  local name=$1 line
  shift
  spm_train --input=corpus --model_prefix="$name" --vocab_size=6000 --character_coverage=0.999 --num_threads=2 \
    --max_sentence_length=20000 --hard_vocab_limit=false --minloglevel=2 "$@" >/dev/null 2>&1
  spm_export_vocab --model="$name.model" --output="$name.pieces"
  python3 - "$name.pieces" >"$name.json" <<'PY'
import json, sys
pieces = [line.rstrip("\n").split("\t")[0] for line in open(sys.argv[1], encoding="utf-8", newline="\n")]
own = [p for p in pieces if p.startswith("<") and p.endswith(">")][:40]
print(json.dumps({"added_tokens": [{"content": p} for p in own],
                  "model": {"vocab": {p.replace("\u2581", " "): i for i, p in enumerate(pieces)}}}))
PY
  {
    node "$root/tools/tokenizer_golden.mjs" texts "$name.json" "${TEXTS:-2000}"
    node "$root/tools/tokenizer_golden.mjs" files 1000 "${files[@]}"
  } | python3 -c 'import json, sys
for line in sys.stdin: print(json.dumps(json.loads(line).replace("\n", " ")))' >"$name.jsonl"
  python3 -c 'import json, sys
for line in sys.stdin: sys.stdout.write(json.loads(line) + "\n")' <"$name.jsonl" >"$name.lines"
  spm_encode --model="$name.model" --output_format=id <"$name.lines" >"$name.ids"
  spm_decode --model="$name.model" --input_format=id <"$name.ids" >"$name.decoded"
  python3 - "$name" >reference <<'PY'
import json, sys
ids = open(sys.argv[1] + ".ids", encoding="utf-8", newline="\n")
texts = open(sys.argv[1] + ".decoded", encoding="utf-8", newline="\n")
for line, text in zip(ids, texts):
    print(json.dumps({"ids": [int(i) for i in line.split()], "text": text[:-1]}, separators=(",", ":")))
PY
  "$lab" tokens "$name.model" "$name.jsonl" --out own >speed
  line=$(node "$root/tools/tokenizer_golden.mjs" compare reference own "$name.jsonl") || status=1
  printf '%s: %s; %s\n' "$name" "$line" "$(grep -o '[0-9.]* MB/s' speed)"
}

for kind in unigram bpe; do
  compare $kind --model_type=$kind
  compare $kind-bytes --model_type=$kind --byte_fallback
  compare $kind-identity --model_type=$kind --normalization_rule_name=identity --remove_extra_whitespaces=false \
    --byte_fallback --split_digits --allow_whitespace_only_pieces
  compare $kind-folded --model_type=$kind --normalization_rule_name=nmt_nfkc_cf --add_dummy_prefix=false
  compare $kind-own --model_type=$kind --normalization_rule_name=nfkc_cf \
    --user_defined_symbols='<sep>,the,ing,世界,▁▁,<|x|>,(' --control_symbols='<cls>,[MASK]'
  compare $kind-behind --model_type=$kind --treat_whitespace_as_suffix --split_by_whitespace=false
done
exit $status
