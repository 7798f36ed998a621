#include "data/text/wordpiece.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "core/error.h"
#include "data/formats/file_bytes.h"
#include "data/text/unicode.h"
#include "tests/data/files.h"

namespace frugal::data {
namespace {

using frugal_test::TemporaryFolder;
using Words = std::vector<std::string>;

Vocabulary small_vocabulary() {
  return {{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##a", "a", "the",
           "##\u00fc", "\u4e2d", "!", "runn", "##ing", "##in", "##g"},
          "a list"};
}

TEST_CASE("words of BERT's basic tokenizer") {
  // Spaces of every kind, and none at all.
  CHECK(basic_tokens("").empty());
  CHECK(basic_tokens(" \t\r\n\u00a0\u3000\u2028\u2029").empty());
  CHECK(basic_tokens("a\u00a0b\u2003c\u3000d\u2028e\tf\ng") ==
        Words{"a", "b", "c", "d", "e", "f", "g"});
  // Case and accents, composed or not; two marks; what has no decomposition stays.
  CHECK(basic_tokens("H\u00c9llo") == Words{"hello"});
  CHECK(basic_tokens("He\u0301llo \u1ec7 \u0301") == Words{"hello", "e"});
  CHECK(basic_tokens("\u00d8re \u0141") == Words{"\u00f8re", "\u0142"});
  CHECK(basic_tokens("H\u00c9llo", false) == Words{"H\u00c9llo"});
  CHECK(basic_tokens("\u00c5ngstr\u00f6m \u212b") == Words{"angstrom", "a"});
  // Turkish I with a dot becomes i and a mark, which goes; a dotless one stays. Sharp s stays, its
  // capital becomes it.
  CHECK(basic_tokens("\u0130stanbul D\u0131\u015f") == Words{"istanbul", "d\u0131s"});
  CHECK(basic_tokens("Stra\u00dfe STRA\u1e9eE") == Words{"stra\u00dfe", "stra\u00dfe"});
  // The sigma at a word's end.
  CHECK(basic_tokens("\u039f\u0394\u039f\u03a3 \u03a3") ==
        Words{"\u03bf\u03b4\u03bf\u03c2", "\u03c3"});
  // Ligatures have compatibility decompositions only.
  CHECK(basic_tokens("\ufb01ne \uff21") == Words{"\ufb01ne", "\uff41"});
  // Punctuation alone: ASCII symbols too, others by category.
  CHECK(basic_tokens("don't $5.00!") == Words{"don", "'", "t", "$", "5", ".", "00", "!"});
  CHECK(basic_tokens("a^b`c~d|e+f") ==
        Words{"a", "^", "b", "`", "c", "~", "d", "|", "e", "+", "f"});
  CHECK(basic_tokens("\u00bfqu\u00e9\u2026\u201cx\u201d\u20ac5\u00b0") ==
        Words{"\u00bf", "que", "\u2026", "\u201c", "x", "\u201d", "\u20ac5\u00b0"});
  CHECK(basic_tokens("\u037ea") == Words{";", "a"});  // the Greek question mark decomposes to ;
  // Ideographs stand alone, kana and hangul do not; hangul decomposes into jamo.
  CHECK(basic_tokens("ab\u4e2d\u6587c\U00020000\uf900") ==
        Words{"ab", "\u4e2d", "\u6587", "c", "\U00020000", "\u8c48"});
  CHECK(basic_tokens("\u30ab\u30bf \u30ac") == Words{"\u30ab\u30bf", "\u30ab"});
  CHECK(basic_tokens("\ud55c") == Words{"\u1112\u1161\u11ab"});
  // Emoji are symbols, not punctuation; joiners (Cf) vanish, variation selectors (Mn) too.
  CHECK(basic_tokens("ok\U0001f600\U0001f44d") == Words{"ok\U0001f600\U0001f44d"});
  CHECK(basic_tokens("\U0001f468\u200d\U0001f469 \u2764\ufe0f") ==
        Words{"\U0001f468\U0001f469", "\u2764"});
  CHECK(basic_tokens("a\u200bb\u00adc\ufeffd\u2060e") == Words{"abcde"});
  // Controls vanish without splitting, even \v and \f; so do NUL, U+0085, U+FFFD.
  CHECK(basic_tokens(std::string_view("a\0b\x0b"
                                      "c\x0c"
                                      "d\x1c"
                                      "e\x7f"
                                      "f",
                                      11)) == Words{"abcdef"});
  CHECK(basic_tokens("a\u0085b\ufffdc") == Words{"abc"});
  // Private use and unassigned ones stay.
  CHECK(basic_tokens("a\ue000b\U000e0fffc") == Words{"a\ue000b\U000e0fffc"});
  // Bytes that are no UTF-8 vanish: stray, overlong, surrogate, beyond the end, cut off.
  CHECK(basic_tokens("a\x80"
                     "b\xc0\xaf"
                     "c\xed\xa0\x80"
                     "d\xf4\x90\x80\x80"
                     "e\xe4\xb8") == Words{"abcde"});
}

TEST_CASE("UTF-8 there and back") {
  for (char32_t code : {U'\0', U'a', U'\x7f', U'\u0080', U'\u07ff', U'\u0800', U'\uffff',
                        U'\U00010000', U'\U0010ffff'}) {
    std::string text;
    append_utf8(text, code);
    CHECK(from_utf8(text) == std::u32string(1, code));
  }
  size_t at = 0;
  const CodePoint bad = next_code_point("\xe4\xb8", at);
  CHECK((!bad.valid && bad.code == 0xe4 && at == 1));
}

TEST_CASE("words to the longest pieces") {
  const WordPiece tokenizer(small_vocabulary());
  CHECK(tokenizer.pieces("") == Words{});
  CHECK(tokenizer.pieces("Unaffable") == Words{"un", "##aff", "##able"});
  CHECK(tokenizer.pieces("running!") == Words{"runn", "##ing", "!"});  // not ##in, ##g
  CHECK(tokenizer.pieces("unaffix the") == Words{"[UNK]", "the"});     // no piece for "ix"
  CHECK(tokenizer.pieces("##able") == Words{"[UNK]", "[UNK]", "[UNK]"});
  CHECK(tokenizer.pieces("[CLS]") == Words{"[UNK]", "[UNK]", "[UNK]"});
  CHECK(tokenizer.pieces("a\u4e2da") == Words{"a", "\u4e2d", "a"});
  // A piece ends between characters: "u" with the first byte of "ue" is none.
  const WordPiece cased(small_vocabulary(), {.lower_case = false});
  CHECK(cased.pieces("a\u00fc") == Words{"a", "##\u00fc"});
  CHECK(cased.pieces("a\u00fb") == Words{"[UNK]"});
  CHECK(cased.pieces("The") == Words{"[UNK]"});
  // 100 characters are a word, 101 are not.
  CHECK(tokenizer.pieces(std::string(100, 'a')).size() == 100);
  CHECK(tokenizer.pieces(std::string(101, 'a')) == Words{"[UNK]"});
  std::string wide = "a";
  for (int i = 0; i < 99; ++i) wide += "\u00fc";  // 199 bytes
  CHECK(cased.pieces(wide).size() == 100);
  CHECK(cased.pieces(wide + "a") == Words{"[UNK]"});
  CHECK(tokenizer.decode(tokenizer.encode("unaffable the !")) == "unaffable the !");
  CHECK_THROWS_WITH_AS(tokenizer.decode({17}), doctest::Contains("id in [0, 17), got 17"), Error);
}

TEST_CASE("pairs lose tokens of the longer one") {
  const WordPiece tokenizer(small_vocabulary());
  const int32_t cls = 2, sep = 3;
  const TokenPair one = tokenizer.single({8, 9}, 4);
  CHECK(one.ids == TokenIds{cls, 8, 9, sep});
  CHECK(one.second == 4);
  CHECK(tokenizer.single({8, 9, 4}, 4).ids == TokenIds{cls, 8, 9, sep});
  CHECK(tokenizer.single({}, 2).ids == TokenIds{cls, sep});
  const TokenPair two = tokenizer.pair({4, 5, 6, 7}, {8, 9}, 9);
  CHECK(two.ids == TokenIds{cls, 4, 5, 6, 7, sep, 8, 9, sep});
  CHECK(two.second == 6);
  CHECK(tokenizer.pair({4, 5, 6, 7}, {8, 9}, 7).ids == TokenIds{cls, 4, 5, sep, 8, 9, sep});
  // Equal lengths: the second one loses.
  CHECK(tokenizer.pair({4, 5, 6, 7}, {8, 9}, 6).ids == TokenIds{cls, 4, 5, sep, 8, sep});
  CHECK(tokenizer.pair({4}, {8}, 3).ids == TokenIds{cls, sep, sep});
  CHECK_THROWS_WITH_AS(tokenizer.single({}, 1), doctest::Contains("max_length of at least 2"),
                       Error);
  CHECK_THROWS_WITH_AS(tokenizer.pair({}, {}, 2), doctest::Contains("at least 3 for two texts"),
                       Error);
}

TEST_CASE("vocabularies that cannot be") {
  const TemporaryFolder folder;
  const auto rejects = [&](const std::string& text, const char* why) {
    const std::string path = folder.write("vocab.txt", text);
    CHECK_THROWS_WITH_AS(WordPiece{read_vocabulary(path)}, doctest::Contains(why), Error);
  };
  rejects("", "expected tokens in");
  rejects("[PAD]\n[UNK]\n[CLS]\n", "expected the token \"[SEP]\"");
  rejects("[PAD]\n[UNK]\n[SEP]\n", "expected the token \"[CLS]\"");
  rejects("[PAD]\n[CLS]\n[SEP]\n", "expected the token \"[UNK]\"");
  rejects("[CLS]\n[UNK]\n[SEP]\n", "expected the token \"[PAD]\"");
  rejects("[PAD]\na\nb\na\n", "\"a\" at lines 2 and 4");
  rejects("[PAD]\n\nb\n", "token at line 2");
  CHECK_THROWS_AS(read_vocabulary(folder / "none"), Error);
  // Windows' line ends, and no end at all.
  const Vocabulary read =
      read_vocabulary(folder.write("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]"));
  CHECK(read.size() == 4);
  CHECK(read.token(3) == "[SEP]");
  CHECK_THROWS_WITH_AS(WordPiece(read, {.max_word_characters = 0}),
                       doctest::Contains("max_word_characters of at least 1"), Error);
}

TEST_CASE("the published vocabulary") {
  const char* root = std::getenv("FRUGAL_DATA");
  const std::string path =
      std::string(root == nullptr ? "" : root) + "/text/bert-base-uncased-vocab.txt";
  if (root == nullptr || !is_file(path)) {
    MESSAGE("skipped: no text/bert-base-uncased-vocab.txt in $FRUGAL_DATA");
    return;
  }
  const WordPiece tokenizer(read_vocabulary(path));
  CHECK(tokenizer.size() == 30522);
  CHECK(tokenizer.unknown() == 100);
  const EncoderLayout& layout = *tokenizer.encoder_layout();
  CHECK(layout.padding == 0);
  CHECK(layout.before == TokenIds{101});
  CHECK(layout.between == TokenIds{102});
  // Known from BERT's documentation and papers.
  CHECK(tokenizer.encode("Hello, world!") == TokenIds{7592, 1010, 2088, 999});
  CHECK(tokenizer.pieces("unaffable") == Words{"una", "##ffa", "##ble"});
  CHECK(tokenizer.pieces("embeddings") == Words{"em", "##bed", "##ding", "##s"});
}

}  // namespace
}  // namespace frugal::data
