// Texts and the ids that the reference implementation gives them, for tools/tokenizer_golden.sh.
//   node tokenizer_golden.mjs texts TOKENIZER.json COUNT   prints texts, a JSON string in each line
//   node tokenizer_golden.mjs ids TOKENIZER.json TEXTS     prints {"ids", "text"} for each of them, and "full": the ids
//                                                          with special tokens, where these are others
//   node tokenizer_golden.mjs files COUNT FILE...           prints pieces of files as texts
//   node tokenizer_golden.mjs compare REFERENCE OWN TEXTS   compares two outputs of ids; exit status 1: they differ
//   node tokenizer_golden.mjs cases FILE                   fills in the ids of a file of small tokenizers and texts
import crypto from 'crypto';
import fs from 'fs';
import { createRequire } from 'module';

// mulberry32: the same texts on every machine.
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return (t ^ (t >>> 14)) >>> 0;
  };
}

// Code points of scripts, as inclusive ranges.
const scripts = [
  [0x41, 0x5a], [0x61, 0x7a], [0xc0, 0x17f], [0x180, 0x24f], [0x250, 0x2af], [0x370, 0x377], [0x391, 0x3a1],
  [0x3b1, 0x3c9], [0x410, 0x44f], [0x531, 0x556], [0x5d0, 0x5ea], [0x621, 0x64a], [0x904, 0x939], [0x985, 0x98c],
  [0xb85, 0xb8a], [0xe01, 0xe30], [0xe81, 0xe82], [0x10d0, 0x10f0], [0x1200, 0x1248], [0x13a0, 0x13ef],
  [0x1780, 0x17b3], [0x1e00, 0x1eff], [0x3041, 0x3096], [0x30a1, 0x30fa], [0x4e00, 0x9fa5], [0xac00, 0xd7a3],
  [0x1100, 0x1112], [0xff21, 0xff3a], [0x1d400, 0x1d454], [0x10400, 0x1044f], [0x20000, 0x20100],
];
const marks = [[0x300, 0x36f], [0x93e, 0x94d], [0x64b, 0x652], [0x20d0, 0x20dc], [0xe31, 0xe31], [0xfe00, 0xfe0f]];
const digits = [[0x30, 0x39], [0x660, 0x669], [0x966, 0x96f], [0xff10, 0xff19], [0xb2, 0xb3], [0x2160, 0x2170], [0xbc, 0xbe]];
const signs = [
  [0x21, 0x2f], [0x3a, 0x40], [0x5b, 0x60], [0x7b, 0x7e], [0xa1, 0xbf], [0x2010, 0x2027], [0x20a0, 0x20bf],
  [0x2190, 0x21ff], [0x2200, 0x22ff], [0x3001, 0x3003], [0x1f300, 0x1f5ff], [0x1f600, 0x1f64f], [0x1f1e6, 0x1f1ff],
  [0x1f3fb, 0x1f3ff], [0x2581, 0x2581], [0xfffd, 0xfffd], [0xe000, 0xe010], [0x2580, 0x259f],
];
const spaces = [' ', ' ', ' ', '  ', '   ', '\n', '\n\n', '\r\n', '\t', '\t\t', ' \n', '\n ', '\u00a0', '\u3000', '\u2003',
  '\u200b', '\u200d', '\u0085', '\u2028', '\ufeff', '\u000b', '\u001c', '\u0001', '\u007f'];
const endings = ["'s", "'S", "'t", "'re", "'RE", "'Ve", "'m", "'ll", "'LL", "'d", "'\u017f", "\u2019s", "'", "''s", "'x", " 's"];
const words = ['the', 'The', 'of', 'and', 'hello', 'World', 'HTTPServer', 'camelCase', 'snake_case', 'return', 'def', 'int',
  'naïve', 'café', 'Straße', 'İstanbul', 'ΟΔΟΣ', 'привет', 'мир', '世界', '你好', 'こんにちは', 'カタカナ', '한국어', 'שלום',
  'مرحبا', 'नमस्ते', 'สวัสดี', 'e\u0301', 'ﬁn', '①', 'Ⅷ', 'don', 'I', 'x', 'https://example.org/a?b=c&d=1', '3.14159',
  '1,000,000', '0x1F', '2024-05-06', 'C++', '{"a": [1, 2]}', '<div class="x">', '// comment', 'a==b', '!=', '&&', '->', '👩‍👩‍👧‍👦',
  '👍🏽', '🇩🇪', '...', '—', '“q”', '¿Qué?', 'ｆｕｌｌ', '\\n', '#include <x>', 'for (;;) {', '</s>', '<0x41>', '<|x|>', '[MASK]', '<s>', '▁', '▁the'];

function texts(tokenizer, count) {
  const next = random(20261128);
  const below = (n) => next() % n;
  const pick = (list) => list[below(list.length)];
  const from = (ranges) => {
    const [first, last] = pick(ranges);
    return String.fromCodePoint(first + below(last - first + 1));
  };
  const added = tokenizer.added_tokens.map((t) => t.content);
  const vocabulary = Array.isArray(tokenizer.model.vocab) ? tokenizer.model.vocab.map((r) => r[0])
                                                         : Object.keys(tokenizer.model.vocab);
  const parts = [
    () => pick(words),
    () => pick(words) + pick(endings),
    () => pick(spaces),
    () => pick(spaces).repeat(1 + below(12)),
    () => {  // a word of one script
      const script = pick(scripts);
      let word = '';
      for (let i = 1 + below(9); i > 0; --i) word += from([script]) + (below(12) === 0 ? from(marks) : '');
      return word;
    },
    () => {  // mixed case, as identifiers have it
      let word = '';
      for (let i = 1 + below(9); i > 0; --i) word += from(below(3) === 0 ? [[0x41, 0x5a]] : [[0x61, 0x7a]]);
      return word;
    },
    () => {
      let number = '';
      const script = below(3) === 0 ? pick(digits) : [0x30, 0x39];
      for (let i = 1 + below(11); i > 0; --i) number += from([script]);
      return number;
    },
    () => {
      let sign = '';
      const same = below(2) === 0 ? from(signs) : null;
      for (let i = 1 + below(6); i > 0; --i) sign += same ?? from(signs);
      return sign;
    },
    () => from(below(2) === 0 ? marks : signs),
    () => pick(vocabulary).slice(0, 40),
    () => (added.length > 0 ? pick(added) : ' '),
    () => ' ' + pick(words),
    () => ' ' + pick(words),
  ];
  const all = ['', ' ', '  ', '\n', 'a', ' a', 'a ', "don't", "I'LL", '\u0301', '🙂', 'Hello, world!'];
  while (all.length < count) {
    let text = '';
    for (let i = 1 + below(30); i > 0; --i) text += pick(parts)();
    all.push(text.replace(/\0/g, ''));
  }
  return all.slice(0, count);
}

const [what, file, other] = process.argv.slice(2);
if (what === 'texts') {
  const made = texts(JSON.parse(fs.readFileSync(file, 'utf8')), Number(other));
  process.stdout.write(made.map((t) => JSON.stringify(t) + '\n').join(''));
} else if (what === 'files') {
  const pieces = [];
  for (const name of process.argv.slice(4)) {
    const text = fs.readFileSync(name, 'utf8');
    for (let at = 0; at < text.length; at += 1500) pieces.push(text.slice(at, at + 1500).toWellFormed());
  }
  const next = random(7);
  for (let i = 0; i < Number(file) && pieces.length > 0; ++i)
    process.stdout.write(JSON.stringify(pieces[next() % pieces.length].replace(/\0/g, '')) + '\n');
} else if (what === 'compare') {
  const lines = (name) => fs.readFileSync(name, 'utf8').split('\n').filter((l) => l !== '').map((l) => JSON.parse(l));
  const reference = lines(file), own = lines(other), given = lines(process.argv[5]);
  const digest = crypto.createHash('sha256');
  let ids = 0, wrong = Math.abs(reference.length - own.length);
  reference.forEach((expected, i) => {
    ids += expected.ids.length;
    digest.update(JSON.stringify(expected.ids) + '\n');
    const same = own[i] !== undefined && ['ids', 'full', 'text'].every(
      (key) => JSON.stringify(expected[key]) === JSON.stringify(own[i][key]));
    if (same) return;
    if (++wrong <= 5) console.log('differs:', JSON.stringify(given[i]), JSON.stringify(expected), JSON.stringify(own[i]));
  });
  console.log(`${reference.length} texts, ${ids} ids, ${wrong} differ, sha256 ${digest.digest('hex')}`);
  process.exit(wrong > 0 ? 1 : 0);
} else {
  const { Tokenizer } = createRequire(process.cwd() + '/')('@anush008/tokenizers');
  const results = async (tokenizer, text) => {
    const ids = (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds();
    const full = (await tokenizer.encode(text, null, { addSpecialTokens: true })).getIds();
    const more = full.length > ids.length ? { full } : {};
    return { ids, ...more, text: ids.length > 0 ? await tokenizer.decode(ids, false) : '' };
  };
  if (what === 'ids') {
    const tokenizer = Tokenizer.fromFile(file);
    for (const line of fs.readFileSync(other, 'utf8').split('\n')) {
      if (line === '') continue;
      process.stdout.write(JSON.stringify(await results(tokenizer, JSON.parse(line))) + '\n');
    }
  } else {
    const cases = JSON.parse(fs.readFileSync(file, 'utf8'));
    for (const each of cases) {
      const tokenizer = Tokenizer.fromString(JSON.stringify(each.tokenizer));
      each.expected = [];
      for (const text of each.texts) each.expected.push(await results(tokenizer, text));
    }
    process.stdout.write('[\n' + cases.map((each) => JSON.stringify(each)).join(',\n') + '\n]\n');
  }
}
