#include "data/text/hub/decoders.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "data/text/byte_characters.h"
#include "data/text/hub/split_pattern.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

using Tokens = std::vector<std::string>;

std::string with_replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  if (from.empty()) return std::string(text);
  while (true) {
    const size_t at = text.find(from);
    out.append(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(at + from.size());
  }
}

// Spaces before punctuation and English endings, which WordPiece's words have.
std::string without_extra_spaces(std::string text) {
  constexpr const char* kPairs[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                       {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                       {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                       {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& pair : kPairs) text = with_replaced(text, pair[0], pair[1]);
  return text;
}

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

// Each token alone: change(token, place, count).
class EachDecoder final : public Decoder {
 public:
  using Change = std::function<std::string(const std::string& token, size_t place, size_t count)>;
  explicit EachDecoder(Change change) : change_(std::move(change)) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = change_(tokens[i], i, tokens.size());
  }

 private:
  Change change_;
};

class FuseDecoder final : public Decoder {
 public:
  void apply(Tokens& tokens) const override { tokens = {joined(tokens)}; }
};

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += bytes_of_characters(token).value_or(token);
    tokens = {valid_utf8(bytes)};
  }
};

// The byte that "<0x41>" stands for.
std::optional<char> byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char digit : {token[3], token[4]}) {
    const bool decimal = digit >= '0' && digit <= '9';
    const char lower = static_cast<char>(digit | 0x20);
    if (!decimal && (lower < 'a' || lower > 'f')) return std::nullopt;
    value = value * 16 + (decimal ? digit - '0' : lower - 'a' + 10);
  }
  return static_cast<char>(value);
}

class ByteFallbackDecoder final : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    Tokens all;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (valid_utf8(bytes) == bytes)
        all.push_back(bytes);
      else
        all.insert(all.end(), bytes.size(), "\xEF\xBF\xBD");  // U+FFFD for each byte
      bytes.clear();
    };
    for (const std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes += *byte;
        continue;
      }
      flush();
      all.push_back(token);
    }
    flush();
    tokens = std::move(all);
  }
};

class PieceDecoder final : public Decoder {
 public:
  explicit PieceDecoder(const PieceFile& file)
      : unknown_(file.pieces[static_cast<size_t>(file.unknown)].text),
        surface_(file.unknown_surface),
        bytes_(file.byte_fallback),
        takes_first_(file.dummy_prefix || file.remove_spaces),
        takes_all_(file.remove_spaces) {}
  void apply(Tokens& tokens) const override {
    std::string text, bytes;
    const auto flush = [&] {  // U+FFFD for each byte that belongs to no character
      for (size_t at = 0; at < bytes.size();) {
        const size_t begin = at;
        if (next_code_point(bytes, at).valid)
          text.append(bytes, begin, at - begin);
        else
          text += "\xEF\xBF\xBD";
      }
      bytes.clear();
    };
    constexpr std::string_view kMark = "\xE2\x96\x81";
    bool at_begin = takes_first_;
    for (const std::string& token : tokens) {
      if (const auto byte = bytes_ ? byte_of(token) : std::nullopt) {
        bytes += *byte;
        continue;
      }
      flush();
      at_begin = at_begin && text.empty();
      std::string_view piece = token;
      if (piece == unknown_) piece = surface_;
      if (at_begin && piece.starts_with(kMark)) {
        piece.remove_prefix(kMark.size());
        at_begin = takes_all_;
      }
      text += with_replaced(piece, kMark, " ");
    }
    flush();
    tokens = {std::move(text)};
  }

 private:
  std::string unknown_, surface_;
  bool bytes_, takes_first_, takes_all_;
};

class CtcDecoder final : public Decoder {
 public:
  explicit CtcDecoder(const TokenizerEntry& entry)
      : padding_(entry.text("pad_token")),
        delimiter_(entry.text("word_delimiter_token")),
        cleanup_(entry.flag("cleanup", true)) {}
  void apply(Tokens& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      token = with_replaced(token, padding_, "");
      if (cleanup_) token = with_replaced(without_extra_spaces(token), delimiter_, " ");
    }
    std::erase(tokens, "");
  }

 private:
  std::string padding_, delimiter_;
  bool cleanup_;
};

EachDecoder word_piece_decoder(const TokenizerEntry& entry) {
  return EachDecoder([prefix = entry.text("prefix", "##"), cleanup = entry.flag("cleanup", true)](
                         const std::string& token, size_t place, size_t) {
    std::string text = token;
    if (place > 0) text = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
    return cleanup ? without_extra_spaces(text) : text;
  });
}

EachDecoder metaspace_decoder(const TokenizerEntry& entry) {
  const bool prepends =
      entry.flag("add_prefix_space", true) && entry.text("prepend_scheme", "always") != "never";
  return EachDecoder([mark = entry.character("replacement"), prepends](const std::string& token,
                                                                       size_t place, size_t) {
    return with_replaced(token, mark, place == 0 && prepends ? "" : " ");
  });
}

EachDecoder strip_decoder(const TokenizerEntry& entry) {
  const int64_t start = entry.count("start", 1 << 20), stop = entry.count("stop", 1 << 20);
  return EachDecoder([content = entry.character("content"), start, stop](const std::string& token,
                                                                         size_t, size_t) {
    std::string_view text = token;
    for (int64_t i = 0; i < start && text.starts_with(content); ++i)
      text.remove_prefix(content.size());
    for (int64_t i = 0; i < stop && text.ends_with(content); ++i)
      text.remove_suffix(content.size());
    return std::string(text);
  });
}

void add_decoders(const TokenizerEntry& entry, std::vector<std::unique_ptr<Decoder>>& all) {
  const std::string type = entry.text("type");
  const auto add = [&](auto decoder) {
    all.push_back(std::make_unique<decltype(decoder)>(std::move(decoder)));
  };
  if (type == "Sequence") {
    for (const TokenizerEntry& each : entry.at("decoders").list()) add_decoders(each, all);
  } else if (type == "ByteLevel") {
    add(ByteLevelDecoder());
  } else if (type == "ByteFallback") {
    add(ByteFallbackDecoder());
  } else if (type == "Fuse") {
    add(FuseDecoder());
  } else if (type == "CTC") {
    add(CtcDecoder(entry));
  } else if (type == "WordPiece") {
    add(word_piece_decoder(entry));
  } else if (type == "Metaspace") {
    add(metaspace_decoder(entry));
  } else if (type == "Strip") {
    add(strip_decoder(entry));
  } else if (type == "BPEDecoder") {
    add(EachDecoder([suffix = entry.text("suffix", "</w>")](const std::string& token, size_t place,
                                                            size_t count) {
      return with_replaced(token, suffix, place + 1 == count ? "" : " ");
    }));
  } else if (type == "Replace") {
    const auto pattern = std::make_shared<const SplitPattern>(read_pattern(entry));
    add(EachDecoder(
        [pattern, content = entry.text("content")](const std::string& token, size_t, size_t) {
          return replaced(token, *pattern, content);
        }));
  } else {
    entry.at("type").fail(
        "BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, Strip, WordPiece or "
        "Sequence");
  }
}

}  // namespace

std::unique_ptr<Decoder> make_piece_decoder(const PieceFile& file) {
  return std::make_unique<PieceDecoder>(file);
}

std::vector<std::unique_ptr<Decoder>> read_decoders(const TokenizerEntry& entry) {
  std::vector<std::unique_ptr<Decoder>> all;
  add_decoders(entry, all);
  return all;
}

}  // namespace frugal::data
