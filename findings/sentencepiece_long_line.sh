#!/usr/bin/env bash
# SentencePiece 0.1.97 cuts the same word differently far behind in a long line: a Unigram model adds the scores of a
# path in f32 from the beginning of the line, so small differences are lost once the sum is large.
# Seen: "a" and "b" have the score -3, "ab" has -6.0078125, so "ab" is cut into "a" and "b". In one line of 30,000 words
# "ab" (90 kB), the first 18,724 are; the other 11,276 are the piece "ab". In lines of one word each, none is.
# Frugal: our sums are in f32, too, so that ids are equal, and begin anew after 64 KiB at the next place that no piece
# crosses (data/text/hub/unigram_model.cpp); tests/data/text/hub/piece_file_test.cpp; docs/guide/tokenizers.md.
. "$(dirname "$0")/packages.sh"
packages bookworm 'sentencepiece=0.1.97*'

# The model, as Protocol Buffers write it: pieces with score and type, and the type Unigram.
printf '%b' '\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02' \
  '\x0a\x0c\x0a\x03\xe2\x96\x81\x15\x00\x00\x80\xbf\x18\x01' \
  '\x0a\x0a\x0a\x01a\x15\x00\x00\x40\xc0\x18\x01' '\x0a\x0a\x0a\x01b\x15\x00\x00\x40\xc0\x18\x01' \
  '\x0a\x0b\x0a\x02ab\x15\x00\x40\xc0\xc0\x18\x01' '\x12\x02\x18\x01' >"$work/bookworm/tmp/x.model"
for ((i = 0; i < 30000; ++i)); do echo ab; done >"$work/bookworm/tmp/lines"
tr '\n' ' ' <"$work/bookworm/tmp/lines" >"$work/bookworm/tmp/line"

whole() {  # how many words of a file are the piece "ab", whose id is 4
  inside bookworm spm_encode --model=/tmp/x.model --output_format=id "/tmp/$1" 2>/dev/null | tr ' ' '\n' | grep -cx 4
}

one=$(whole lines || true) many=$(whole line || true)
echo "words that are one piece: $one in lines of one word, $many in one line"
expect "a word alone is cut into two pieces" [ "$one" = 0 ]
expect "far behind in a long line, it is one piece" [ "$many" -gt 1000 -a "$many" -lt 30000 ]
done_with_it
