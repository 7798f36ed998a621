// Studies of a tokenizer and a chat template: how fast the tokenizer is, and what they give.
#include <chrono>
#include <cstdio>
#include <fstream>

#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"
#include "data/text/chat/chat_template.h"
#include "data/text/hub/hub_tokenizer.h"
#include "lab/commands.h"

namespace frugal::lab {
namespace {

using Clock = std::chrono::steady_clock;

// The lines of a file that are not empty.
std::vector<std::string> read_lines_of(const std::string& path) {
  const std::vector<uint8_t> bytes = data::read_file("tokens", path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) all.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

// The texts of a file: JSON strings, one in each line, or the whole file.
std::vector<std::string> read_texts(const std::string& path) {
  if (!path.ends_with(".jsonl")) {
    const std::vector<uint8_t> bytes = data::read_file("tokens", path);
    return {std::string(bytes.begin(), bytes.end())};
  }
  std::vector<std::string> all;
  for (const std::string& line : read_lines_of(path))
    all.push_back(data::parse_json<nlohmann::json>(line).get<std::string>());
  return all;
}

}  // namespace

void study_tokens(const LabArguments& arguments) {
  auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const data::HubTokenizer tokenizer(arguments.config);
  const double load = seconds();
  const std::vector<std::string> texts = read_texts(arguments.texts);
  int64_t bytes = 0, count = 0;
  std::vector<data::TokenIds> ids;
  begin = Clock::now();
  for (const std::string& text : texts) {
    ids.push_back(tokenizer.encode(text));
    bytes += static_cast<int64_t>(text.size());
    count += static_cast<int64_t>(ids.back().size());
  }
  const double encode = seconds();
  if (!arguments.out.empty()) {
    std::ofstream out(arguments.out);
    for (const data::TokenIds& each : ids) {
      nlohmann::json line = {{"ids", each}, {"text", tokenizer.decode(each)}};
      const data::TokenIds full = tokenizer.with_special(each);
      if (full.size() > each.size()) line["full"] = full;
      out << line.dump() << "\n";
    }
    FRUGAL_CHECK(out.good(), "[tokens] cannot write {}", in_quotes(arguments.out));
  }
  const double speed = static_cast<double>(bytes) / encode / 1e6;
  if (arguments.json) {
    std::printf("%s\n", nlohmann::json{{"texts", texts.size()},
                                       {"bytes", bytes},
                                       {"ids", count},
                                       {"load_seconds", load},
                                       {"mb_per_second", speed}}
                            .dump()
                            .c_str());
    return;
  }
  std::printf("%s\n", tokenizer.describe().c_str());
  std::printf("read in %.2f s; %zu texts of %lld bytes become %lld ids, %.1f MB/s on one thread\n",
              load, texts.size(), static_cast<long long>(bytes), static_cast<long long>(count),
              speed);
}

void study_chat(const LabArguments& arguments) {
  using Json = nlohmann::ordered_json;
  const auto chat = data::ChatTemplate::of_folder(arguments.config);
  FRUGAL_CHECK(chat.has_value(), "[chat] expected a chat template in {}",
               in_quotes(arguments.config));
  for (const std::string& line : read_lines_of(arguments.texts)) {
    const auto json = data::parse_json<Json>(line);
    Json result;
    try {
      const data::Conversation conversation{json.at("messages"), json.value("tools", Json())};
      result["text"] = chat->render(conversation, json.value("add_generation_prompt", false));
    } catch (const Error& error) {
      result["error"] = error.what();
    }
    try {
      const data::Conversation conversation{json.at("messages"), json.value("tools", Json())};
      const data::ConversationText made = chat->training_text(conversation);
      for (const data::Span& span : made.answers)
        result["answers"].push_back(made.text.substr(span.begin, span.end - span.begin));
    } catch (const Error& error) {
      result["untrainable"] = error.what();
    }
    std::printf("%s\n", result.dump().c_str());
  }
}

}  // namespace frugal::lab
