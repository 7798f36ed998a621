#!/usr/bin/env bash
# @huggingface/tokenizers 0.2.0, which is written in JavaScript, cuts texts into other ids than Hugging Face's own
# reference, written in Rust, for settings of tokenizer.json that it reads without an error. The reference is here crate
# 0.22.2 in @anush008/tokenizers 0.6.0.
# Seen (what each setting does there and here is printed): WordLevel has no id for an unknown word, not unk_token's;
# "Removed" removes neither punctuation nor what a Split finds; continuing_subword_prefix of BPE is not looked for;
# fuse_unk joins no unknown characters that bytes follow, and byte_fallback of Unigram gives no bytes; single_word is
# ignored, so an added token is found inside of words; truncation and padding are ignored.
# Equal are plain BPE, BERT's WordPiece and Unigram, which most files have.
# Frugal: data/text/hub has the reference's ids; tests/data/text/hub/cases.json holds these settings, and
# docs/guide/tokenizers.md says that truncation and padding are not looked at.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @huggingface/tokenizers@0.2.0 @anush008/tokenizers@0.6.0 >/dev/null 2>&1 || not_tried "npm has no such packages"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import reference from "@anush008/tokenizers";
import { Tokenizer } from "@huggingface/tokenizers";

const numbered = (...words) => Object.fromEntries(words.map((word, id) => [word, id]));
const bpe = (vocab, merges, more) => ({
  type: "BPE", dropout: null, unk_token: "?", continuing_subword_prefix: null, end_of_word_suffix: null,
  fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab, merges, ...more,
});
const letters = bpe(numbered("?", "a", "b", "!", " ", "ab"), [["a", "b"]]);
const bytes = ["<0xC3>", "<0xA4>", "<0xB6>"];
const added = {
  id: 6, content: "ba", single_word: true, lstrip: false, rstrip: false, normalized: false, special: false,
};
const cases = {
  "BPE": ["ab ba", { model: letters }],
  "WordPiece": ["abb a", { model: { type: "WordPiece", unk_token: "?", continuing_subword_prefix: "##",
    max_input_chars_per_word: 100, vocab: numbered("?", "a", "##b") }, pre_tokenizer: { type: "BertPreTokenizer" } }],
  "Unigram": ["abaxb", { model: { type: "Unigram", unk_id: 0,
    vocab: [["?", 0], ["a", -1], ["b", -1], ["ab", -1.5]] } }],
  "WordLevel, an unknown word": ["a c b", { model: { type: "WordLevel", unk_token: "?",
    vocab: numbered("?", "a", "b") }, pre_tokenizer: { type: "WhitespaceSplit" } }],
  "Punctuation, Removed": ["a!b", { model: letters, pre_tokenizer: { type: "Punctuation", behavior: "Removed" } }],
  "Split, Removed": ["a b", { model: letters,
    pre_tokenizer: { type: "Split", pattern: { String: " " }, behavior: "Removed", invert: false } }],
  "BPE, continuing_subword_prefix": ["aba", { model: bpe(numbered("?", "a", "b", "##a", "##b", "ab"), [["a", "##b"]],
    { continuing_subword_prefix: "##" }) }],
  "BPE, fuse_unk and byte_fallback": ["aöäöa", { model: bpe(numbered("?", "a", ...bytes.slice(0, 2)), [],
    { fuse_unk: true, byte_fallback: true }) }],
  "Unigram, byte_fallback": ["aäöa", { model: { type: "Unigram", unk_id: 0, byte_fallback: true,
    vocab: [["?", 0], ["a", -1], ...bytes.map((byte) => [byte, -5])] } }],
  "single_word": ["ba aba", { model: letters, added_tokens: [added] }],
  "truncation": ["abba", { model: letters,
    truncation: { max_length: 2, strategy: "LongestFirst", stride: 0, direction: "Right" } }],
  "padding": ["ab", { model: letters, padding: { strategy: { Fixed: 3 }, direction: "Right", pad_to_multiple_of: null,
    pad_id: 0, pad_type_id: 0, pad_token: "?" } }],
};
for (const [name, [text, own]] of Object.entries(cases)) {
  const file = { version: "1.0", truncation: null, padding: null, added_tokens: [], normalizer: null,
    pre_tokenizer: null, post_processor: null, decoder: null, ...own };
  const right = await reference.Tokenizer.fromString(JSON.stringify(file)).encode(text);
  const found = new Tokenizer(file, {}).encode(text);
  console.log(`${name}: ${JSON.stringify(Array.from(right.getIds()))} ${JSON.stringify(found.ids)}`);
}
END_OF_PROGRAM
node "$work/js/run.mjs" | tee "$work/out"
# A setting, the ids of the reference, and those of the other one.
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
BPE: [5,4,2,1] [5,4,2,1]
WordPiece: [1,2,2,1] [1,2,2,1]
Unigram: [3,1,0,2] [3,1,0,2]
WordLevel, an unknown word: [1,0,2] [1,null,2]
Punctuation, Removed: [1,2] [1,3,2]
Split, Removed: [1,2] [1,4,2]
BPE, continuing_subword_prefix: [5,3] [1,2,1]
BPE, fuse_unk and byte_fallback: [1,2,3,0,1] [1,0,2,3,0,1]
Unigram, byte_fallback: [1,2,3,2,4,1] [1,0,1]
single_word: [6,4,5,1] [6,4,1,6]
truncation: [5,2] [5,2,1]
padding: [5,0,0] [5]
END_OF_LINES
done_with_it
