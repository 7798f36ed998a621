#include <algorithm>
#include <filesystem>

#include "apps/config/data_kinds.h"
#include "apps/config/make_model.h"
#include "apps/config/make_tokenizer.h"
#include "core/random_streams.h"
#include "core/rng.h"
#include "data/text/glue.h"
#include "data/text/masked_batches.h"
#include "data/text/sequence_batches.h"
#include "data/text/text_batches.h"

namespace frugal::apps {
namespace {

constexpr const char* kMask = "attention_mask";
constexpr const char* kTypes = "token_type_ids";
constexpr int64_t kUsualVocabulary = 30522;
constexpr int64_t kRandomTrain = 2048, kRandomTest = 512;

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

constexpr int64_t kMostTokens = int64_t{1} << 28;  // that lie in memory

int64_t random_count(const DataConfig& config, bool train) {
  const int64_t wanted = train ? config.train_samples : config.test_samples;
  const int64_t usual = train ? std::max(kRandomTrain, 2 * config.batch_size) : kRandomTest;
  return wanted > 0 ? wanted : usual;
}

// ---- sequences of labels of their own, from memory: each class prefers a part of the vocabulary
std::vector<data::Sequence> random_sequences(const Config& config, int64_t vocabulary,
                                             int64_t classes, bool train) {
  const int64_t count = random_count(config.data, train);
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

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const GlueRow& row : kGlue) all.emplace_back(row.name);
  for (const char* other : {"tiny_shakespeare", "text", "random_tokens"}) all.emplace_back(other);
  return all;
}

bool is_stream(const std::string& name) { return name == "tiny_shakespeare" || name == "text"; }
bool hides_tokens(const Config& config) {
  return is_stream(config.data.name) && config.model.name != kSequential &&
         family_of(config.model) == Family::encoder;
}

void check(const Config& config) {
  if (hides_tokens(config) && config.data.tokenizer != "wordpiece")
    throw ConfigError("data.tokenizer",
                      fmt::format("expected wordpiece for {}, which guesses hidden tokens, got {}",
                                  config.model.name, config.data.tokenizer));
  const int64_t most = kMostTokens / config.data.max_length;
  for (const bool train : {true, false})
    if (config.data.name == "random_tokens" && random_count(config.data, train) > most)
      throw ConfigError(train ? "data.train_samples" : "data.test_samples",
                        fmt::format("expected at most {} of data.max_length {}, got {}", most,
                                    config.data.max_length, random_count(config.data, train)));
}

constexpr const char* kShakespeare[] = {"tinyshakespeare.txt", "text/tinyshakespeare.txt",
                                        "input.txt"};

std::vector<std::string> marks(const std::string& name) {
  if (name == "tiny_shakespeare") return {std::begin(kShakespeare), std::end(kShakespeare)};
  std::vector<std::string> all;
  if (const data::GlueTask* task = glue_task(name))
    for (const std::string& folder : {"glue/" + task->name + "/", task->name + "/", std::string()})
      for (const char* file : {"train.tsv", "msr_paraphrase_train.txt"})
        all.push_back(folder + file);
  return all;
}

DataTraits traits(const std::string& name) {
  DataTraits traits;
  traits.kind = BatchSpec::Kind::sequences;
  traits.reads_files = name != "random_tokens";
  traits.is_text = is_stream(name);
  return traits;
}

// The file, or the folder that has it.
std::string text_file(const Config& config) {
  namespace fs = std::filesystem;
  const fs::path dir = *config.data.dir;
  if (config.data.name == "text") {
    if (!fs::is_regular_file(dir))
      throw ConfigError("data.dir", fmt::format("expected a text file, got {}", dir.string()));
    return dir.string();
  }
  for (const char* file : kShakespeare)
    if (fs::is_regular_file(dir / file)) return (dir / file).string();
  throw ConfigError(
      "data.dir", fmt::format("expected a folder with tinyshakespeare.txt, got {}", dir.string()));
}

BatchSpec spec_of(const Config& config) {
  BatchSpec spec;
  spec.kind = BatchSpec::Kind::sequences;
  spec.sample = {config.data.max_length};
  if (config.data.name == "random_tokens") {
    spec.vocabulary = config.model.vocab_size.value_or(kUsualVocabulary);
    spec.target_of_each_token = family_of(config.model) == Family::decoder;
    spec.classes = spec.target_of_each_token ? spec.vocabulary : config.data.classes.value_or(2);
    if (!spec.target_of_each_token) spec.token_extras = {kMask, kTypes};
  } else if (is_stream(config.data.name)) {
    spec.vocabulary = text_tokens(config, text_file(config)).tokenizer->size();
    spec.classes = spec.vocabulary;
    spec.target_of_each_token = true;
    spec.metric = "perplexity";
  } else {
    spec.vocabulary = word_pieces(config)->size();
    spec.classes = static_cast<int64_t>(glue_task(config.data.name)->labels.size());
    spec.metric = glue_task(config.data.name)->metric;
    spec.token_extras = {kMask, kTypes};
  }
  return spec;
}

std::unique_ptr<data::BatchSource> sequences(const Config& config, std::vector<data::Sequence> all,
                                             bool train, int64_t padding) {
  const int64_t limit = train ? config.data.train_samples : config.data.test_samples;
  if (limit > 0 && limit < static_cast<int64_t>(all.size())) all.resize(static_cast<size_t>(limit));
  data::SequenceBatchOptions options;
  options.batch_size = train ? config.data.batch_size : config.data.test_batch_size;
  options.shuffle = train;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.padding = padding;
  return std::make_unique<data::SequenceBatches>(std::move(all), options);
}

// A stream of random sequences, each with the tokens of a class.
std::shared_ptr<const data::TokenIds> random_tokens(const Config& config) {
  auto ids = std::make_shared<data::TokenIds>();
  for (const data::Sequence& each : random_sequences(config, spec_of(config).vocabulary, 2, true))
    ids->insert(ids->end(), each.ids.begin(), each.ids.end());
  return ids;
}

std::unique_ptr<data::BatchSource> windows(const Config& config,
                                           const std::shared_ptr<const data::TokenIds>& ids,
                                           bool train) {
  const auto count = static_cast<int64_t>(ids->size());
  const auto [first, last] = data::split_text(count, config.data.validation);
  data::TextBatchOptions options;
  options.batch_size = train ? config.data.batch_size : config.data.test_batch_size;
  options.length = config.data.max_length;
  options.random = train;
  options.seed = static_cast<uint64_t>(config.run.seed);
  auto source = std::make_unique<data::TextBatches>(ids, train ? first : last, options);
  if (!hides_tokens(config)) return source;
  const auto words = word_pieces(config);
  data::MaskOptions masks;
  masks.mask = words->vocabulary().id("[MASK]");
  masks.vocabulary = words->size();
  masks.special = {words->begin(), words->separator(), words->padding()};
  masks.seed = options.seed;
  return std::make_unique<data::MaskedBatches>(std::move(source), masks);
}

std::unique_ptr<data::BatchSource> open(const Config& config, Split split) {
  if (split == Split::validation) return nullptr;
  const bool train = split == Split::train;
  if (is_stream(config.data.name))
    return windows(config, text_tokens(config, text_file(config)).ids, train);
  if (const data::GlueTask* task = glue_task(config.data.name)) {
    const auto words = word_pieces(config);
    const auto examples = data::read_glue(*config.data.dir, task->name,
                                          train ? data::GlueSplit::train : data::GlueSplit::dev);
    return sequences(config, data::encode_glue(examples, *task, *words, config.data.max_length),
                     train, words->padding());
  }
  const BatchSpec spec = spec_of(config);
  if (spec.target_of_each_token) return windows(config, random_tokens(config), train);
  return sequences(config, random_sequences(config, spec.vocabulary, spec.classes, train), train,
                   0);
}

}  // namespace

std::shared_ptr<const data::Tokenizer> tokenizer_of(const Config& config) {
  const std::vector<std::string> texts = names();
  if (std::find(texts.begin(), texts.end(), config.data.name) == texts.end() ||
      config.data.name == "random_tokens")
    return nullptr;
  if (is_stream(config.data.name)) return text_tokens(config, text_file(config)).tokenizer;
  return word_pieces(config);
}

const DataKind& text_data() {
  static const DataKind kind = {
      names, traits, check, marks, spec_of, open, [](const Config&, int64_t) {
        return std::vector<int64_t>{};
      }};
  return kind;
}

}  // namespace frugal::apps
