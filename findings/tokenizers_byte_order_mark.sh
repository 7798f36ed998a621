#!/usr/bin/env bash
# gpt-tokenizer 4.0.0 and js-tiktoken 1.0.21 of the npm registry, which have GPT's tokenizers in JavaScript, lose U+FEFF
# at the beginning of a text. Files of many programs and much code for Windows begin with it. They make texts of bytes
# by TextDecoder, which takes this mark away unless it is told ignoreBOM (WHATWG's Encoding Standard, "decode"). A text
# that is encoded and decoded is then another one. gpt-tokenizer makes its table of pieces so, too: it never finds those
# that begin with the mark, and gives other ids than OpenAI's code, also for a mark inside of a text.
# Seen, U+FEFF and "using System;" by cl100k_base: 4117 744 26 by tiktoken 1.0.22 (OpenAI's code in Rust) and by
# js-tiktoken, 171 3299 985 744 26 by gpt-tokenizer: 5 tokens for 3. Decoded, tiktoken's bytes have the mark, and the
# texts of the other two have not. gpt-tokenizer finds none of the 8 pieces that begin with it.
# Frugal: a tokenizer works on bytes and takes none away; tests/data/text/byte_bpe_test.cpp, "any pairs, any bytes: as
# the definition says, and back"; docs/guide/tokenizers.md says what other programs do.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  gpt-tokenizer@4.0.0 js-tiktoken@1.0.21 tiktoken@1.0.22 >/dev/null 2>&1 || not_tried "npm has no such packages"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import * as gpt from "gpt-tokenizer/encoding/cl100k_base";
import { Tiktoken } from "js-tiktoken/lite";
import cl100k from "js-tiktoken/ranks/cl100k_base";
import { get_encoding } from "tiktoken";

const rust = get_encoding("cl100k_base"), script = new Tiktoken(cl100k);
const whole = new TextDecoder("utf-8", { ignoreBOM: true });
const mark = (text) => text.startsWith("\ufeff") ? "with the mark" : "without the mark";
const text = "\ufeffusing System;";
const ids = Array.from(rust.encode(text));
console.log("tiktoken:", ids.join(" ") + ",", mark(whole.decode(rust.decode(ids))));
console.log("js-tiktoken:", script.encode(text).join(" ") + ",", mark(script.decode(script.encode(text))));
console.log("gpt-tokenizer:", gpt.encode(text).join(" ") + ",", mark(gpt.decode(gpt.encode(text))));

let begins = 0, found = 0;
for (let id = 0; id < 100256; ++id) {
  const piece = whole.decode(rust.decode_single_token_bytes(id));
  if (!piece.startsWith("\ufeff")) continue;
  ++begins;
  if (gpt.encode(piece).includes(id)) ++found;
}
console.log(`pieces that begin with the mark: ${begins}, found by gpt-tokenizer: ${found}`);
END_OF_PROGRAM
node "$work/js/run.mjs" | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
tiktoken: 4117 744 26, with the mark
js-tiktoken: 4117 744 26, without the mark
gpt-tokenizer: 171 3299 985 744 26, without the mark
pieces that begin with the mark: 8, found by gpt-tokenizer: 0
END_OF_LINES
done_with_it
