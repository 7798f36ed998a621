#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "apps/config/data/data_kinds.h"
#include "apps/config/data/data_parts.h"
#include "apps/config/data/make_tokenizer.h"
#include "apps/config/data/random_dataset.h"
#include "apps/config/data/tensor_data.h"
#include "apps/config/keys/config_readers.h"
#include "apps/config/make_model.h"
#include "core/log.h"
#include "core/random/random_streams.h"
#include "core/rng.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/text/glue.h"
#include "data/text/json_lines.h"
#include "data/text/masked_batches.h"
#include "data/text/sequence_batches.h"
#include "data/text/text_batches.h"
#include "models/registry.h"
#include "train/metrics/metric_names.h"

namespace frugal::apps {
namespace {

constexpr const char* kMask = "attention_mask";
constexpr const char* kSegments = "token_type_ids";
constexpr const char* kPositions = "position_ids";
constexpr int64_t kUsualVocabulary = 30522;

struct GlueRow {
  const char* name;
  const char* task;
};
constexpr GlueRow kGlue[] = {{"sst2", "SST-2"}, {"cola", "CoLA"}, {"mrpc", "MRPC"},
                             {"rte", "RTE"},    {"qnli", "QNLI"}, {"mnli", "MNLI"}};

const data::GlueTask* glue_task(const std::string& name) {
  for (const GlueRow& row : kGlue)
    if (name == row.name) return &data::glue_task(row.task);
  return nullptr;
}

constexpr int64_t kMostTokens = int64_t{1} << 28;  // at most so many lie in memory

// ---- sequences of labels of their own, from memory: each class prefers a part of the vocabulary
std::vector<data::Sequence> random_sequences(const Config& config, int64_t vocabulary,
                                             int64_t classes, bool train) {
  const int64_t count = random_samples(config.data, train);
  const RandomStream& stream = train ? streams::kTrainSequences : streams::kTestSequences;
  Rng rng = stream.rng(static_cast<uint64_t>(config.run.seed));
  std::vector<data::Sequence> all(static_cast<size_t>(count));
  for (data::Sequence& sequence : all) {
    const RngKey key = rng.next();
    sequence.label = static_cast<int64_t>(uniform_int(key, 0, static_cast<uint64_t>(classes)));
    const int64_t part = std::max<int64_t>(vocabulary / classes, 1);
    for (int64_t i = 0; i < config.data.max_length; ++i) {
      const auto at = static_cast<uint64_t>(2 * i + 1);
      const auto any = uniform_int(key, at, static_cast<uint64_t>(vocabulary));
      const auto own = uniform_int(key, at + 1, static_cast<uint64_t>(part));
      const auto id = i % 2 == 0 ? static_cast<int64_t>(any)
                                 : sequence.label * part + static_cast<int64_t>(own);
      sequence.ids.push_back(static_cast<int32_t>(std::min(id, vocabulary - 1)));
    }
    sequence.second = static_cast<int32_t>(sequence.ids.size());
  }
  return all;
}

bool is_conversations(const Config& config) { return config.data.name == kConversations; }

class TextKind final : public DataKind {
 public:
  std::vector<std::string> names() const override;
  DataTraits traits(const Config& config) const override;
  std::vector<DataKey> keys() const override;
  void check(const Config& config) const override;
  std::vector<std::string> marks(const std::string& name) const override;
  std::shared_ptr<OpenData> open() const override;
};

std::vector<DataKey> TextKind::keys() const {
  namespace range = by_name::range;
  return {{{{"text", range::any_text(), "jsonl: the field with the text."}, &DataConfig::text},
           data_named({"jsonl"})},
          {{{"second_text", range::or_nothing(range::any_text()),
             "jsonl with encoders: the field with the second of two texts; null: there is one."},
            &DataConfig::second_text},
           {"jsonl with encoders",
            {"data.name", "model.name"},
            [](const Config& c) { return c.data.name == "jsonl" && !data_traits(c).is_text; }}},
          {{by_name::without_effect(
                {"vocabulary", range::or_nothing(range::any_text()),
                 "Text: the tokenizer's vocabulary (vocab.txt; byte_bpe: the folder of "
                 "vocab.json and merges.txt; hub and conversations: the folder of a model with "
                 "tokenizer.json or tokenizer.model); null: text/bert-base-uncased-vocab.txt or "
                 "text/gpt2 in the "
                 "folders of the data; or model.weights, or else data.dir."}),
            &DataConfig::vocabulary},
           {"GLUE, jsonl, conversations, and text whose tokenizer is not characters",
            {"data.name", "data.tokenizer"},
            [](const Config& c) {
              return data_traits(c).is_text ? c.data.tokenizer != "characters"
                                            : is_glue(c) || is_conversations(c);
            }}},
          {{{"tokenizer", range::choice("characters, wordpiece, byte_bpe, hub"),
             "text: what tokens are, hub as the tokenizer of a model's folder says. GLUE and "
             "jsonl with encoders take wordpiece or hub; characters, the default, is hub there if "
             "data.vocabulary or model.weights is a folder with a tokenizer, and else "
             "wordpiece."},
            &DataConfig::tokenizer},
           {"tiny_shakespeare, text, jsonl, and GLUE with wordpiece or hub",
            {"data.name"},
            [](const Config& c) {
              return data_traits(c).is_text ||
                     (is_glue(c) && (c.data.tokenizer == "wordpiece" || c.data.tokenizer == "hub"));
            }}},
          {{{"max_length", range::integer(2, 1 << 20), "Text: tokens of a sequence, at most."},
            &DataConfig::max_length},
           with_data(BatchSpec::Kind::sequences)},
          {{{"answers_only", range::flag(),
             "conversations: the loss counts what is answered, and not what is asked."},
            &DataConfig::answers_only},
           data_named({kConversations})},
          {{{"truncate", range::flag(),
             "conversations: samples longer than max_length lose their ends; false: such a sample "
             "is an error."},
            &DataConfig::truncate},
           data_named({kConversations})},
          {{{"join", range::flag(),
             "conversations: samples share rows of at most max_length tokens and do not see each "
             "other; batch_size counts rows."},
            &DataConfig::join},
           data_named({kConversations})},
          {{{"validation", range::positive(0.9),
             "text, conversations: share at the end that is tested on."},
            &DataConfig::validation},
           {"text that is cut into windows, and conversations",
            {"data.name", "model.name"},
            [](const Config& c) { return makes_windows(c) || is_conversations(c); }}}};
}

std::vector<std::string> TextKind::names() const {
  std::vector<std::string> all;
  for (const GlueRow& row : kGlue) all.emplace_back(row.name);
  for (const char* other : {"tiny_shakespeare", "text", "jsonl", kConversations, "random_tokens"})
    all.emplace_back(other);
  return all;
}

// One text, which a tokenizer makes tokens of.
bool is_stream(const Config& config) {
  const std::string& name = config.data.name;
  return name == "tiny_shakespeare" || name == "text" || (name == "jsonl" && is_decoder(config));
}
bool is_array(const Config& config) { return config.data.name == "tensors"; }
bool hides_tokens(const Config& config) {
  return is_stream(config) && config.model.name != kSequential &&
         family_of(config.model) == Family::encoder;
}

void TextKind::check(const Config& config) const {
  if (hides_tokens(config) && config.data.tokenizer != "wordpiece" &&
      config.data.tokenizer != "hub")
    throw ConfigError("data.tokenizer", fmt::format("expected wordpiece or hub for {}, which "
                                                    "guesses hidden tokens, got {}",
                                                    config.model.name, config.data.tokenizer));
  if (config.data.name == "jsonl" && !is_decoder(config) &&
      family_of(config.model) != Family::encoder)
    throw ConfigError("model.name", fmt::format("expected a network for the data jsonl, an encoder "
                                                "(classes) or a decoder (next tokens), got {}",
                                                config.model.name));
  if (is_conversations(config) && !is_decoder(config))
    throw ConfigError("model.name", fmt::format("expected a decoder for the data conversations, "
                                                "got {}",
                                                config.model.name));
  if (is_conversations(config) && config.data.join && config.model.name == kSequential)
    throw ConfigError("data.join", fmt::format("expected false for the network {}, whose layers do "
                                               "not keep samples of a row apart",
                                               kSequential));
  const int64_t most = kMostTokens / config.data.max_length;
  for (const bool train : {true, false})
    if (config.data.name == "random_tokens" && random_samples(config.data, train) > most)
      throw ConfigError(train ? "data.train_samples" : "data.test_samples",
                        fmt::format("expected at most {} of data.max_length {}, got {}", most,
                                    config.data.max_length, random_samples(config.data, train)));
}

const std::vector<std::string>& json_endings() {
  static const std::vector<std::string> all = {".jsonl", ".jsonl.gz", ".json"};
  return all;
}

constexpr const char* kShakespeare[] = {"tinyshakespeare.txt", "text/tinyshakespeare.txt",
                                        "input.txt"};

std::vector<std::string> TextKind::marks(const std::string& name) const {
  if (name == "tiny_shakespeare") return {std::begin(kShakespeare), std::end(kShakespeare)};
  std::vector<std::string> all;
  if (const data::GlueTask* task = glue_task(name))
    for (const std::string& folder : {"glue/" + task->name + "/", task->name + "/", std::string()})
      for (const char* file : {"train.tsv", "msr_paraphrase_train.txt"})
        all.push_back(folder + file);
  return all;
}

DataTraits TextKind::traits(const Config& config) const {
  DataTraits traits;
  traits.kind = BatchSpec::Kind::sequences;
  traits.reads_files = config.data.name != "random_tokens";
  traits.is_text = is_stream(config);
  traits.splits = (config.data.name == "jsonl" || is_array(config)) && !is_decoder(config);
  return traits;
}

// The files of a text: one, or those of its parts.
DataParts text_files(const Config& config) {
  namespace fs = std::filesystem;
  const fs::path dir = *config.data.dir;
  if (config.data.name == "jsonl") return find_parts(config, json_endings());
  if (config.data.name == "text") {
    if (fs::is_regular_file(dir)) return {dir.string(), "", ""};
    if (fs::is_directory(dir)) return find_parts(config, {".txt"});
    throw ConfigError("data.dir", fmt::format("expected a text file, or a folder with train.txt, "
                                              "got {}",
                                              in_quotes(dir.string())));
  }
  for (const char* file : kShakespeare)
    if (fs::is_regular_file(dir / file)) return {(dir / file).string(), "", ""};
  throw ConfigError(
      "data.dir", fmt::format("expected a folder with tinyshakespeare.txt, got {}", dir.string()));
}

// The text of a file. A file of JSON lines gives its texts, with an empty line between them.
std::string read_text(const Config& config, const std::string& path) {
  if (config.data.name != "jsonl") {
    const std::vector<uint8_t> bytes = data::read_file("text", path);
    return {bytes.begin(), bytes.end()};
  }
  std::string text;
  const auto lines = at_section("data", [&] {
    return data::read_json_lines(path, {config.data.text, "", ""});
  });
  for (const data::JsonLine& line : lines) text += (text.empty() ? "" : "\n\n") + line.text;
  return text;
}

struct StreamTokens {
  DataParts files;
  TextTokens tokens;  // one list for each part that there is, in the order of DataParts
  // Null: there is none of the split.
  std::shared_ptr<const data::TokenIds> of(Split split) const {
    size_t at = 0;
    for (const std::string* path : {&files.train, &files.validation, &files.test}) {
      if (path->empty()) continue;
      if (*path == files.of(split)) return tokens.ids[at];
      ++at;
    }
    return nullptr;
  }
};

// ---- JSON lines with labels
struct LabelledLines {
  DataParts files;
  std::vector<data::JsonLine> train;
  std::vector<std::string> labels;
  data::SplitIndices split;  // the parts that one file is cut into
};

std::vector<data::JsonLine> read_labelled(const Config& config, const std::string& path) {
  const DataConfig& c = config.data;
  return at_section("data", [&] {
    return data::read_json_lines(path,
                                 {c.text, c.second_text.value_or(""), c.target.value_or("label")});
  });
}

std::vector<int64_t> labels_of(const std::vector<data::JsonLine>& lines,
                               const std::vector<std::string>& names, const std::string& path) {
  std::vector<int64_t> labels;
  for (const data::JsonLine& line : lines) {
    const auto at = std::find(names.begin(), names.end(), line.label);
    FRUGAL_CHECK(at != names.end(),
                 "[jsonl] {}: expected one of the {} labels of the training part, got {}",
                 in_quotes(path), names.size(), in_quotes(line.label));
    labels.push_back(at - names.begin());
  }
  return labels;
}

LabelledLines read_lines(const Config& config, const DataParts& files) {
  constexpr size_t kMostLabels = 10000;
  LabelledLines lines;
  lines.files = files;
  lines.train = read_labelled(config, files.train);
  const auto& known = config.data.known;
  lines.labels = known != nullptr && !known->class_ids.empty() ? known->class_ids
                                                               : data::sorted_labels(lines.train);
  FRUGAL_CHECK(lines.labels.size() <= kMostLabels,
               "[jsonl] {}: expected at most {} different labels, got {}; is {} the field of the "
               "label?",
               in_quotes(files.train), kMostLabels, lines.labels.size(),
               in_quotes(config.data.target.value_or("label")));
  if (files.one_file())
    lines.split = split_by(config, labels_of(lines.train, lines.labels, files.train));
  return lines;
}

class OpenTexts final : public OpenData {
 public:
  BatchSpec spec(const Config& config) override;
  std::unique_ptr<data::BatchSource> batches(const Config& config, Split split) override;
  const std::vector<int64_t>& row_lengths(const Config& config, Split split) override;
  std::vector<std::string> class_names(const Config& config) override;
  std::shared_ptr<const data::Tokenizer> tokenizer(const Config& config) override;
  void describe(const Config& config, RunEncoding& known) override;

 private:
  using Sequences = std::vector<data::Sequence>;
  using Ids = std::shared_ptr<const data::TokenIds>;

  std::shared_ptr<const data::Tokenizer> for_encoder(const Config& config) {
    return tokenizers_.for_encoder(config);
  }
  std::unique_ptr<data::BatchSource> conversations(const Config& config, Split split);
  const StreamTokens& stream_tokens(const Config& config);
  const LabelledLines& labelled_lines(const Config& config) {
    if (!lines_) lines_ = read_lines(config, find_parts(config, json_endings()));
    return *lines_;
  }
  int64_t array_vocabulary(const Config& config);
  Sequences labelled_sequences(const Config& config, Split split);
  Sequences array_sequences(const Config& config, Split split);
  // A stream of random sequences, each with the tokens of a class.
  Ids random_tokens(const Config& config);
  std::unique_ptr<data::BatchSource> windows(const Config& config, const Ids& ids, bool train,
                                             bool whole = false);
  // A part that has a file of its own is read whole.
  std::unique_ptr<data::BatchSource> windows_of(const Config& config, const Ids& ids, Split split,
                                                bool one_file);

  Tokenizers tokenizers_;
  std::optional<StreamTokens> stream_;
  std::optional<LabelledLines> lines_;
  std::map<std::string, Sequences> samples_;  // conversations, by file
  bool told_no_end_ = false;                  // the chat template ends no answer
  std::map<Split, std::vector<int64_t>> row_lengths_;
  TensorFiles arrays_;
  std::optional<int64_t> array_vocabulary_;  // one more than the highest id in the arrays
};

const StreamTokens& OpenTexts::stream_tokens(const Config& config) {
  if (stream_) return *stream_;
  StreamTokens stream;
  stream.files = text_files(config);
  std::vector<std::string> paths;
  for (const std::string& path : {stream.files.train, stream.files.validation, stream.files.test})
    if (!path.empty()) paths.push_back(path);
  stream.tokens = tokenizers_.encode(
      config, paths, [&](const std::string& path) { return read_text(config, path); });
  return stream_.emplace(std::move(stream));
}

std::vector<data::Sequence> OpenTexts::labelled_sequences(const Config& config, Split split) {
  const LabelledLines& lines = labelled_lines(config);
  std::vector<data::JsonLine> own;
  std::string path = lines.files.train;
  if (lines.files.one_file()) {
    for (const int64_t index : part_of(lines.split, split))
      own.push_back(lines.train[static_cast<size_t>(index)]);
  } else if (split == Split::train) {
    own = lines.train;
  } else {
    path = lines.files.of(split);
    if (!path.empty()) own = read_labelled(config, path);
  }
  const std::vector<int64_t> labels = labels_of(own, lines.labels, path);
  std::vector<data::GlueExample> examples;
  for (size_t i = 0; i < own.size(); ++i)
    examples.push_back({std::move(own[i].text), std::move(own[i].second), labels[i]});
  data::GlueTask task;
  task.pair = config.data.second_text.has_value();
  return data::encode_glue(examples, task, *for_encoder(config), config.data.max_length);
}

// ---- arrays of token ids
std::shared_ptr<const data::TokenIds> stream_of(const TokenArray& array) {
  if (!array.ids.defined()) return nullptr;
  const auto* const ids = array.ids.data<int64_t>();
  return std::make_shared<data::TokenIds>(ids, ids + array.ids.numel());
}

std::vector<data::Sequence> OpenTexts::array_sequences(const Config& config, Split split) {
  const TokenArray array = arrays_.open_tokens(config, split);
  if (!array.ids.defined()) return {};
  FRUGAL_CHECK(
      !array.labels.empty() && array.ids.dim() == 2,
      "[tensors] expected token ids [N, T] and a target for each sequence, for the classes "
      "of {}; a decoder predicts next tokens without targets",
      config.model.name);
  const int64_t length = array.ids.size(1);
  if (length > config.data.max_length)
    throw ConfigError("data.max_length",
                      fmt::format("expected at least {}, the tokens of a sample, "
                                  "got {}",
                                  length, config.data.max_length));
  std::vector<data::Sequence> all(array.labels.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const auto* const from = array.ids.data<int64_t>() + static_cast<int64_t>(i) * length;
    all[i].ids.assign(from, from + length);
    all[i].second = static_cast<int32_t>(length);
    all[i].label = array.labels[i];
  }
  return all;
}

int64_t OpenTexts::array_vocabulary(const Config& config) {
  if (config.model.vocab_size) return *config.model.vocab_size;
  if (array_vocabulary_) return *array_vocabulary_;
  int64_t most = 0;
  for (const Split split : {Split::train, Split::validation, Split::test}) {
    const TokenArray array = arrays_.open_tokens(config, split);
    for (int64_t i = 0; array.ids.defined() && i < array.ids.numel(); ++i)
      most = std::max(most, array.ids.data<int64_t>()[i] + 1);
  }
  array_vocabulary_ = most;
  return most;
}

BatchSpec OpenTexts::spec(const Config& config) {
  using Target = BatchSpec::Target;
  BatchSpec spec;
  spec.kind = BatchSpec::Kind::sequences;
  spec.sample = {config.data.max_length};
  if (config.data.name == "random_tokens") {
    spec.vocabulary = config.model.vocab_size.value_or(kUsualVocabulary);
    if (is_decoder(config)) spec.target = Target::class_of_token;
    spec.classes = is_decoder(config) ? spec.vocabulary : config.data.classes.value_or(2);
    if (!is_decoder(config)) spec.token_extras = encoder_extras(config);
  } else if (is_array(config)) {
    spec.vocabulary = array_vocabulary(config);
    if (is_decoder(config)) spec.target = Target::class_of_token;
    spec.metric = usual_metric(spec.target);
    spec.classes =
        is_decoder(config) ? spec.vocabulary : arrays_.parts(config).train_targets.classes;
    if (!is_decoder(config)) spec.token_extras = encoder_extras(config);
  } else if (is_conversations(config)) {
    spec.vocabulary = tokenizers_.samples(config)->tokenizer->size();
    if (config.data.join) spec.token_extras = {kPositions};
    spec.classes = spec.vocabulary;
    spec.target = Target::class_of_token;
    spec.metric = usual_metric(spec.target);
  } else if (config.data.name == "jsonl" && !is_decoder(config)) {
    spec.vocabulary = for_encoder(config)->size();
    spec.classes = static_cast<int64_t>(labelled_lines(config).labels.size());
    spec.token_extras = encoder_extras(config);
  } else if (is_stream(config)) {
    spec.vocabulary = stream_tokens(config).tokens.tokenizer->size();
    spec.classes = spec.vocabulary;
    spec.target = Target::class_of_token;
    spec.metric = usual_metric(spec.target);
  } else {
    spec.vocabulary = for_encoder(config)->size();
    spec.classes = static_cast<int64_t>(glue_task(config.data.name)->labels.size());
    spec.metric = glue_task(config.data.name)->metric;
    spec.token_extras = encoder_extras(config);
  }
  return spec;
}

std::unique_ptr<data::BatchSource> sequences(const Config& config, std::vector<data::Sequence> all,
                                             bool train, int64_t padding, bool next_tokens = false,
                                             bool join = false) {
  const int64_t limit = train ? config.data.train_samples : config.data.test_samples;
  if (limit > 0 && limit < static_cast<int64_t>(all.size())) all.resize(static_cast<size_t>(limit));
  data::SequenceBatchOptions options;
  options.batch_size = train ? config.data.batch_size : config.data.test_batch();
  options.shuffle = train;
  options.drop_last = train && config.data.drop_last;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.padding = padding;
  options.next_tokens = next_tokens;
  if (join) options.join_to = config.data.max_length;
  // All of the first step, and the batch of the second one that meets gradients of others.
  const int64_t parts = config.train.gradient_accumulation;
  options.largest_first = parts + std::min<int64_t>(parts, 2);
  return std::make_unique<data::SequenceBatches>(std::move(all), options);
}

std::unique_ptr<data::BatchSource> OpenTexts::conversations(const Config& config, Split split) {
  const DataParts files = find_parts(config, json_endings());
  if (split == Split::validation && files.one_file()) return nullptr;
  const std::string path = files.one_file() ? files.train : files.of(split);
  if (path.empty()) return nullptr;
  const auto encoder = tokenizers_.samples(config);
  auto found = samples_.find(path);
  if (found == samples_.end()) {
    data::TextSampleCounts counts;
    const data::TextSampleOptions options{config.data.max_length, config.data.answers_only,
                                          config.data.truncate};
    found = samples_.emplace(path, data::read_text_samples(path, *encoder, options, counts)).first;
    if (counts.cut > 0 || counts.without_answers > 0)
      log().warn(
          "[conversations] {}: cut at data.max_length {}: {}; left out without an answer: {}",
          in_quotes(path), config.data.max_length, with_noun(counts.cut, "sample"),
          with_noun(counts.without_answers, "sample"));
    if (counts.conversations > 0 && encoder->chat->answer_end() == "" && !told_no_end_) {
      told_no_end_ = true;
      log().warn(
          "[conversations] {}: the chat template ends no answer with tokens that count, so the "
          "network does not learn where one ends; {{{{ eos_token }}}} behind the answer would do "
          "so",
          in_quotes(encoder->chat->name(), 300));
    }
    log().info("[conversations] {}: {} of {}; in the loss: {}", in_quotes(path),
               with_noun(counts.samples, "sample"), with_noun(counts.ids, "token"),
               with_noun(counts.counted, "token"));
  }
  Sequences all = found->second;
  const bool train = split == Split::train;
  if (files.one_file()) {
    const auto [first, last] =
        data::split_text(static_cast<int64_t>(all.size()), config.data.validation);
    const data::TextRange range = train ? first : last;
    if (range.begin == range.end)
      throw ConfigError("data.dir", fmt::format("expected at least two samples to train and to "
                                                "test on, got {} in {}",
                                                all.size(), in_quotes(path)));
    all = Sequences(all.begin() + range.begin, all.begin() + range.end);
  }
  const size_t count = all.size();
  auto source =
      sequences(config, std::move(all), train, encoder->end.value_or(0), true, config.data.join);
  if (config.data.join)
    log().info("[conversations] {}: {} in {} of at most {}", in_quotes(path),
               with_noun(count, "sample"), with_noun(source->samples(), "row"),
               with_noun(config.data.max_length, "token"));
  return source;
}

std::shared_ptr<const data::TokenIds> OpenTexts::random_tokens(const Config& config) {
  auto ids = std::make_shared<data::TokenIds>();
  for (const data::Sequence& each : random_sequences(config, spec(config).vocabulary, 2, true))
    ids->insert(ids->end(), each.ids.begin(), each.ids.end());
  return ids;
}

std::unique_ptr<data::BatchSource> OpenTexts::windows(const Config& config, const Ids& ids,
                                                      bool train, bool whole) {
  const auto count = static_cast<int64_t>(ids->size());
  auto [first, last] = data::split_text(count, config.data.validation);
  if (whole) first = last = {0, count};
  const auto& part = train ? first : last;
  constexpr int64_t kLeastWindow = 2;  // as the range of data.max_length says
  const int64_t tokens = part.end - part.begin, most = tokens - 1;
  const std::string name = config.data.dir.value_or(config.data.name);
  const char* const used = train ? "trained" : "tested";
  if (most < kLeastWindow)
    throw ConfigError(
        config.data.dir ? "data.dir" : "data.name",
        fmt::format("expected a text whose part that is {} on has at least {} tokens, "
                    "got {} with {}",
                    used, kLeastWindow + 1, in_quotes(name), tokens));
  if (config.data.max_length > most)
    throw ConfigError("data.max_length",
                      fmt::format("expected at most {}, as long as a window of the text that {} is "
                                  "{} on can be, got {}",
                                  most, name, used, config.data.max_length));
  data::TextBatchOptions options;
  options.batch_size = train ? config.data.batch_size : config.data.test_batch();
  options.length = config.data.max_length;
  options.random = train;
  options.rest = !hides_tokens(config);  // an encoder would see what fills a shorter window
  options.seed = static_cast<uint64_t>(config.run.seed);
  auto source = std::make_unique<data::TextBatches>(ids, part, options);
  if (!hides_tokens(config)) return source;
  const auto tokenizer = for_encoder(config);
  const data::EncoderLayout& layout = *tokenizer->encoder_layout();
  std::optional<int32_t> mask = tokenizer->find("[MASK]");
  if (!mask) mask = tokenizer->find("<mask>");
  if (!mask)
    throw ConfigError("data.tokenizer", fmt::format("expected a tokenizer with a token [MASK] or "
                                                    "<mask>, got {}",
                                                    tokenizer->describe()));
  data::MaskOptions masks;
  masks.mask = *mask;
  masks.vocabulary = tokenizer->size();
  masks.special = {layout.padding};
  for (const data::TokenIds* around : {&layout.before, &layout.after})
    masks.special.insert(masks.special.end(), around->begin(), around->end());
  masks.seed = options.seed;
  return std::make_unique<data::MaskedBatches>(std::move(source), masks);
}

std::unique_ptr<data::BatchSource> OpenTexts::windows_of(const Config& config, const Ids& ids,
                                                         Split split, bool one_file) {
  if (ids == nullptr || (one_file && split == Split::validation)) return nullptr;
  return windows(config, ids, split == Split::train, !one_file);
}

std::unique_ptr<data::BatchSource> sequences_or_none(const Config& config,
                                                     std::vector<data::Sequence> all, Split split,
                                                     int64_t padding) {
  if (all.empty()) return nullptr;
  return sequences(config, std::move(all), split == Split::train, padding);
}

const std::vector<int64_t>& OpenTexts::row_lengths(const Config& config, Split split) {
  const auto found = row_lengths_.find(split);
  if (found != row_lengths_.end()) return found->second;
  std::vector<int64_t> lengths;
  if (const auto source = batches(config, split); source != nullptr)
    lengths = source->row_lengths();
  std::sort(lengths.begin(), lengths.end());
  return row_lengths_[split] = std::move(lengths);
}

std::unique_ptr<data::BatchSource> OpenTexts::batches(const Config& config, Split split) {
  const bool train = split == Split::train;
  if (is_stream(config)) {
    const StreamTokens& stream = stream_tokens(config);
    return windows_of(config, stream.of(split), split, stream.files.one_file());
  }
  if (is_conversations(config)) return conversations(config, split);
  if (is_array(config) && is_decoder(config)) {
    const TokenArray array = arrays_.open_tokens(config, split);
    return windows_of(config, stream_of(array), split, array.one_part);
  }
  if (is_array(config)) return sequences_or_none(config, array_sequences(config, split), split, 0);
  if (config.data.name == "jsonl")
    return sequences_or_none(config, labelled_sequences(config, split), split,
                             for_encoder(config)->encoder_layout()->padding);
  if (split == Split::validation) return nullptr;
  if (const data::GlueTask* task = glue_task(config.data.name)) {
    const auto words = for_encoder(config);
    const auto examples = data::read_glue(*config.data.dir, task->name,
                                          train ? data::GlueSplit::train : data::GlueSplit::dev);
    return sequences(config, data::encode_glue(examples, *task, *words, config.data.max_length),
                     train, words->encoder_layout()->padding);
  }
  const BatchSpec spec = this->spec(config);
  if (spec.target_of_each_token()) return windows(config, random_tokens(config), train);
  return sequences(config, random_sequences(config, spec.vocabulary, spec.classes, train), train,
                   0);
}

std::vector<std::string> OpenTexts::class_names(const Config& config) {
  if (is_stream(config) || is_decoder(config)) return {};
  if (is_array(config)) return arrays_.class_names(config);
  if (config.data.name == "jsonl") return labelled_lines(config).labels;
  const data::GlueTask* const task = glue_task(config.data.name);
  return task != nullptr ? task->labels : std::vector<std::string>{};
}

std::shared_ptr<const data::Tokenizer> OpenTexts::tokenizer(const Config& config) {
  if (is_array(config) || config.data.name == "random_tokens") return nullptr;
  if (is_stream(config)) return stream_tokens(config).tokens.tokenizer;
  if (is_conversations(config)) return tokenizers_.samples(config)->tokenizer;
  return for_encoder(config);
}

void OpenTexts::describe(const Config& config, RunEncoding& known) {
  if (is_decoder(config) || is_stream(config)) return;
  if (is_array(config)) return arrays_.describe(config, known);
  if (config.data.name != "jsonl") return;
  const LabelledLines& lines = labelled_lines(config);
  known.class_ids = lines.labels;
  if (lines.files.one_file()) known.parts = parts_of(lines.split);
}

std::shared_ptr<OpenData> TextKind::open() const { return std::make_shared<OpenTexts>(); }

}  // namespace

std::vector<std::string> encoder_extras(const Config& config) {
  if (models::network(config.model.name).traits.lacks_token_types) return {kMask};
  return {kMask, kSegments};
}

train::TextInput evaluated_texts(const Config& config) {
  train::TextInput input;
  input.max_length = config.data.max_length;
  input.pair = config.data.second_text.has_value();
  if (const data::GlueTask* task = glue_task(config.data.name)) input.pair = task->pair;
  return input;
}

const DataKind& text_data() {
  static const TextKind kind;
  return kind;
}

}  // namespace frugal::apps
