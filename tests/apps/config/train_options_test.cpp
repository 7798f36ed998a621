// What a configuration becomes, and that the library's defaults are those of the program.
#include "apps/config/train_options.h"
#include "apps/config/data/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"

#include <doctest/doctest.h>

#include "apps/config/make_choice.h"
#include "compress/policies/policy_kind.h"
#include "optim/registry.h"
#include "tests/apps/gradient_of.h"
#include "tests/apps/run.h"

using namespace frugal;
using namespace frugal::apps;

namespace {

constexpr const char* kMlp = R"({
  "model": {"name": "mlp", "hidden": [256, 256]},
  "data": {"name": "random", "shape": [8, 8, 1], "classes": 4, "batch_size": 128,
           "train_samples": 128, "workers": 0}})";

Config resolved(const char* text) {
  Config config = parse_config(Json::parse(text));
  resolve(config);
  return config;
}

}  // namespace

// Every option that the owner lists has the value that it has in the library.
template <class S>
void check_defaults(const S& made, const S& usual = {}) {
  for (const by_name::Option<S>& option : S::list()) {
    CAPTURE(option.key.name);
    CHECK(option.get(made) == option.get(usual));
    CHECK_NOTHROW(check_range(option.key.range, option.get(usual), option.key.name));
  }
}

TEST_CASE("defaults of the program are those of the library, in every option that an owner lists") {
  const Config config = resolved(kMlp);
  const TrainerOptions usual, made = trainer_options(config, nullptr);
  check_defaults(made);
  check_defaults(made.early_stop);
  check_defaults(made.ranks);
  CHECK(made.checkpointed_blocks == usual.checkpointed_blocks);
  CHECK(made.seed == usual.seed);
  CHECK(made.cuda_graphs == usual.cuda_graphs);
  CHECK(made.ranks.buckets.first_bytes == usual.ranks.buckets.first_bytes);
  CHECK(made.early_stop.patience == 0);
  CHECK(!made.compression.tracking);
  const compress::Measuring& measuring = made.compression.choice.measuring;
  check_defaults(measuring);
  CHECK(measuring.first == compress::Measuring().first);
  const Config plain;
  check_defaults(plain.schedule);
  check_defaults(plain.train.of_task);
  check_defaults(plain.train.of_task.knn);
  check_defaults(plain.train.freezing);
  check_defaults(plain.compression.tracking);
  check_defaults(plain.compression.file);
  for (const optim::Kind& kind : optim::kinds())
    for (const by_name::Key& key : kind.keys) {
      CAPTURE(kind.name + "." + key.name);
      Config named;
      named.optim.name = kind.name;
      CHECK(named.optim.value(key.name) == kind.usual(key.name));
    }
}

TEST_CASE(
    "where a configuration sets nothing of early stops and tracking, they are the library's") {
  Config config = resolved(kMlp);
  CHECK(!tracking_options(config));
  config.compression.track_interval = 40;
  CHECK(tracking_options(config)->interval == 40);
  config.compression.track_interval = 0;
  config.compression.tracking.guard = 0.1;
  const TrackingOptions usual, made = tracking_options(config).value();
  CHECK(made.interval == usual.interval);
  CHECK(made.samples == usual.samples);
  CHECK(made.least_bits == usual.least_bits);
  CHECK(made.checkpointed_blocks == usual.checkpointed_blocks);
  CHECK(made.guard == 0.1);
  CHECK(made.batch == 128);
  const EarlyStopOptions stop;
  config.train.early_stop.patience = 3;
  const EarlyStopOptions found = trainer_options(config, nullptr).early_stop;
  CHECK(found.patience == 3);
  CHECK(found.min_delta == stop.min_delta);
  CHECK(found.metric == stop.metric);
}

TEST_CASE("each policy's options are by default those of the program, in every field") {
  const auto program = [](const Json& keys) {
    return make_choice(parse_config({{"compression", keys}}).compression);
  };
  const auto check = [&](const Json& keys, const auto& library) {
    CAPTURE(keys.dump());
    const compress::Choice made = program(keys);
    CHECK(std::get<std::decay_t<decltype(library)>>(made.policy) == library);
    CHECK(made.entropy == compress::Choice{}.entropy);
    CHECK(made.profile == nullptr);
    CHECK(!made.offload);
  };
  check({{"policy", "gact"}}, compress::FixedPolicyOptions{});
  check({{"policy", "gact"}, {"gact", {{"adaptive", true}}}}, compress::AdaptiveOptions{});
  check({{"policy", "actnn"}}, compress::ActnnOptions{});
  check({{"policy", "acgc"}}, compress::AcgcOptions{});
  Config budget = resolved(kMlp);
  budget.compression = {};
  budget.compression.policy = PolicyKind::budget;
  CHECK(std::get<compress::BudgetPolicyOptions>(make_choice(budget.compression).policy) ==
        compress::BudgetPolicyOptions{});
  CHECK(*program({{"offload", "/tmp"}}).offload == compress::OffloadOptions{.directory = "/tmp"});
}

TEST_CASE("the library's default policy packs as the program's, bit by bit") {
  const Config config = resolved(kMlp);
  const auto model = make_model(config, batch_spec(config), kCpu);
  const Batch batch = *make_batches(config, Split::train)->next();
  const auto theirs = make_policy(make_choice(config.compression), kCpu, 7);
  const auto own = make_policy(compress::Choice{}, kCpu, 7);
  const std::vector<float> packed = gradient_of(*model, batch, own.get(), 3);
  CHECK(packed == gradient_of(*model, batch, theirs.get(), 3));
  CHECK(packed != gradient_of(*model, batch, nullptr, 3));
}

TEST_CASE("optimizers with 8 bits keep the state of embeddings in full, whatever their names") {
  const TempFolder folder;
  write_file(folder / "text.txt", std::string(400, 'a') + std::string(400, 'b'));
  const Json list = {
      {"name", "sequential"},
      {"vocab_size", 80},
      {"modules", {{{"embedding", 64}}, "position_embedding", "mean_pool", {{"linear", 64}}}}};
  const Json decoder = {{"name", "decoder"}, {"layers", 1},      {"heads", 2},
                        {"width", 64},       {"vocab_size", 80}, {"tied", true}};
  const Json labelled = {{"name", "random_tokens"}, {"max_length", 64}, {"classes", 64}};
  const Json text = {{"name", "text"}, {"dir", folder / "text.txt"}, {"max_length", 64}};
  struct Row {
    Json model, data;
    std::vector<std::string> tables;
  };
  for (const Row& row : {Row{list, labelled, {"0.weight", "1.weight"}},
                         Row{decoder, text, {"model.embed_tokens.weight"}}}) {
    Config config = parse_config(
        {{"model", row.model}, {"data", row.data}, {"optim", {{"name", "adamw_8bit"}}}});
    resolve(config);
    const auto model = make_model(config, batch_spec(config), kCpu);
    const auto optimizer = make_optimizer(config, *model);
    for (const auto& p : model->parameters())
      p.parameter->set_grad(Tensor::full(p.parameter->shape(), 1));
    optimizer->step(0.01);
    std::vector<std::string> whole;
    bool packs = false;
    for (const auto& [name, tensor] : optimizer->state()) {
      packs = packs || name.starts_with("m8/");
      if (name.starts_with("m/") && tensor.numel() >= 4096) whole.push_back(name.substr(2));
    }
    CHECK(packs);
    CHECK(whole == row.tables);
  }
}
