#include "train/planning/planner.h"

#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "tests/apps/find_in.h"
#include "tests/apps/planned.h"
#include "tests/apps/run.h"
#include "train/planning/bisect.h"

using namespace frugal;
using namespace frugal::apps;
using compress::AdaptivePolicy;
using compress::BudgetPlan;
using compress::BudgetPolicy;

namespace {

constexpr const char* kMlp = R"({
  "model": {"name": "mlp", "hidden": [256, 256, 128], "dropout": 0.1},
  "data": {"name": "random", "shape": [8, 8, 1], "classes": 4, "batch_size": 256,
           "train_samples": 512, "test_samples": 32, "workers": 0},
  "compression": {"advanced": {"min_elements": 1024}}})";

constexpr const char* kBert = R"({
  "model": {"name": "bert_tiny", "layers": 2, "width": 64, "heads": 2, "vocab_size": 500},
  "data": {"name": "random_tokens", "batch_size": 32, "max_length": 64, "classes": 3,
           "train_samples": 128, "test_samples": 32, "workers": 0},
  "compression": {"advanced": {"min_elements": 1024}}})";
constexpr const char* kGpt = R"({
  "model": {"name": "gpt2", "layers": 2, "width": 64, "heads": 2, "vocab_size": 4000},
  "data": {"name": "random_tokens", "batch_size": 16, "max_length": 64, "train_samples": 64,
           "test_samples": 16, "workers": 0},
  "compression": {"advanced": {"min_elements": 1024}}})";

// Which of the policy's recipes it rebuilds.
int rebuilt(const BudgetPolicy& policy, bool lossy) {
  int count = 0;
  for (const auto& recipe : policy.recipes())
    count += (recipe.lossy || !lossy) && !policy.plan()->kept.contains(recipe.seq);
  return count;
}

}  // namespace

TEST_CASE("a budget is bytes or a share, of the peak or of activations") {
  auto parsed = [](const std::string& text) { return parse_budget(text, "p"); };
  CHECK(parsed("2 GiB").bytes == int64_t{2} << 30);
  CHECK(parsed("500 MiB").bytes == 500 << 20);
  CHECK(parsed("1000000").bytes == 1000000);
  CHECK(parsed("1/16").share == 1.0 / 16);
  CHECK(parsed("2/3").share == doctest::Approx(2.0 / 3));
  CHECK(parsed("12x").share == doctest::Approx(1.0 / 12));
  CHECK(parsed("1.5x").share == doctest::Approx(1 / 1.5));
  CHECK(!parsed("1/4").activations);
  CHECK(parsed("1/4 activations").activations);
  CHECK(parsed("13 MiB activations").activations);
  CHECK(parsed("13 MiB activations").bytes == 13 << 20);
  for (const char* wrong :
       {"", "much", "0", "0 B", "1/0", "0/4", "4/1", "0.5x", "x", "1/", "/4", "1//4", "-1 GiB",
        "1 PiB", "1.2.3/4", "1/4 peak", "activations", "99999999 TiB", "1/4\nactivations"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parsed(wrong), ConfigError);
  }
  const std::string long_number(400, '9');
  for (const std::string& wrong : {long_number, long_number + "x", "1/" + long_number})
    CHECK_THROWS_AS(parsed(wrong), ConfigError);
  CHECK_THROWS_AS(config_of(kMlp, "lots"), ConfigError);
  CHECK(config_of(kMlp, "1/2").compression.policy == PolicyKind::budget);
  Json alone = Json::parse(kMlp);
  alone["compression"]["policy"] = "budget";  // follows from a budget, and is no value of its own
  CHECK_THROWS_AS(parse_config(alone), ConfigError);
}

TEST_CASE("real steps take what was planned, and tighter budgets give less memory and more noise") {
  using Budgets = std::vector<const char*>;
  const Budgets activations{"1x activations", "1/2 activations", "1/4 activations",
                            "1/8 activations"};
  const std::vector<std::pair<const char*, Budgets>> cases{
      {kResNet, {"1x", "1/1.3", "1/1.7", "1/2.2"}}, {kResNet, activations}, {kMlp, activations}};
  for (const auto& [text, budgets] : cases) {
    double variance = -1;
    int64_t last = INT64_MAX;
    for (const char* budget : budgets) {
      const Config config = config_of(text, budget);
      const Planner planner(planner_options(config));
      CAPTURE(std::string(text) + budget);
      const StepMemory& planned = planner.planned().memory;
      const int64_t taken =
          planner.of_activations() ? planned.saved() : planned.peak + planner.reserve();
      CHECK(taken <= planner.limit());
      CHECK(2 * taken > planner.limit());
      const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
      planner.adopt(*find_in<BudgetPolicy>(*policy));
      const StepMemory real = real_step(config, policy.get()).memory;
      CHECK(real.saved() == planned.saved());
      CHECK(real.peak >= planned.peak);
      CHECK(real.peak <= planned.peak + planner.reserve());
      CHECK(planner.planned().variance >= variance);
      CHECK(taken < last);
      variance = planner.planned().variance;
      last = taken;
    }
    CHECK(variance > 0);
  }
}

TEST_CASE("steps of transformers take what was planned") {
  // The peak of gpt2 is that of its logits, which no plan lowers.
  const std::vector<std::pair<const char*, std::vector<const char*>>> cases{
      {kBert, {"1/1.2", "1/1.5", "1/8 activations"}},
      {kGpt, {"1/1.5 activations", "1/8 activations"}}};
  for (const auto& [text, budgets] : cases)
    for (const char* budget : budgets) {
      CAPTURE(std::string(text) + budget);
      const Config config = config_of(text, budget);
      const Planner planner(planner_options(config));
      const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
      planner.adopt(*find_in<BudgetPolicy>(*policy));
      const StepMemory planned = planner.planned().memory;
      const StepMemory real = real_step(config, policy.get()).memory;
      CHECK(real.saved() == planned.saved());
      CHECK(real.peak >= planned.peak);
      CHECK(real.peak <= planned.peak + planner.reserve());
    }
}

TEST_CASE("a plain plan keeps what no policy keeps, and has no recipes to look at") {
  for (const char* text : {kResNet, kGpt}) {
    CAPTURE(text);
    const Config config = config_of(text, "1 TiB");
    const Planner planner(planner_options(config));
    CHECK(planner.planned().plan.mode == BudgetPlan::plain);
    CHECK(planner.report().kept_recipes == 0);
    CHECK(planner.meta_steps() < 14);  // four of them count what kernels take
    const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
    auto& budget = *find_in<BudgetPolicy>(*policy);
    planner.adopt(budget);
    CHECK(budget.state()->bits.empty());
    const StepMemory a = real_step(config, policy.get()).memory;
    const StepMemory b = real_step(config, nullptr).memory;
    CHECK(a.peak == b.peak);
    CHECK(a.saved() == b.saved());
  }
}

TEST_CASE("with room for everything, gradients are those without a policy, bit for bit") {
  for (const char* text : {kResNet, kMlp}) {
    const Config config = config_of(text, "1 TiB");
    const Planner planner(planner_options(config));
    CHECK(planner.planned().plan.mode == BudgetPlan::plain);
    const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
    planner.adopt(*find_in<BudgetPolicy>(*policy));
    const Took a = real_step(config, policy.get()), b = real_step(config, nullptr);
    CHECK(a.gradients == b.gradients);
    CHECK(a.memory.peak == b.memory.peak);
    // Recipes alone are as exact; the mlp has next to none.
    if (text == kMlp) continue;
    const Config less = config_of(text, "1/1.2 activations");
    const Planner exact(planner_options(less));
    CHECK(exact.planned().plan.mode == BudgetPlan::exact);
    const auto other = make_policy(make_choice(less.compression), kCpu, 1);
    exact.adopt(*find_in<BudgetPolicy>(*other));
    const Took c = real_step(less, other.get());
    REQUIRE(c.gradients.size() == b.gradients.size());
    CHECK(c.memory.saved() < b.memory.saved());
    // Sums over slices are in another order.
    double distance = 0, norm = 0;
    for (size_t i = 0; i < b.gradients.size(); ++i) {
      distance += std::pow(c.gradients[i] - b.gradients[i], 2);
      norm += std::pow(b.gradients[i], 2);
    }
    CHECK(distance <= 1e-10 * norm);
  }
}

TEST_CASE("recipes are kept raw where there is room, none of them where there is none") {
  auto planned = [](const char* budget) {
    const Config config = config_of(kResNet, budget);
    const Planner planner(planner_options(config));
    CHECK(planner.planned().memory.saved() <= planner.limit());
    const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
    auto& found = *find_in<BudgetPolicy>(*policy);
    planner.adopt(found);
    const StepMemory real = real_step(config, policy.get()).memory;
    CHECK(real.saved() == planner.planned().memory.saved());
    CHECK(planner.report().kept_recipes == static_cast<int64_t>(found.plan()->kept.size()));
    // One more would be too much.
    for (const auto& recipe : found.recipes())
      if (!found.plan()->kept.contains(recipe.seq))
        CHECK(real.saved() + recipe.raw_bytes > planner.limit());
    struct {
      BudgetPlan plan;
      int recipes, lossy;
    } result{*found.plan(), rebuilt(found, false), rebuilt(found, true)};
    return result;
  };
  const auto most = planned("1/1.05 activations"), fewer = planned("1/1.3 activations");
  CHECK(most.plan.mode == BudgetPlan::exact);
  CHECK(!most.plan.kept.empty());
  CHECK(most.recipes > 0);
  CHECK(most.recipes < fewer.recipes);
  CHECK(most.lossy == 0);
  CHECK(fewer.lossy == 0);
  const auto tight = planned("1/8 activations");
  CHECK(tight.plan.mode == BudgetPlan::mixed);
  CHECK(tight.plan.kept.empty());
  CHECK(tight.lossy > 0);
}

TEST_CASE("what entropy coding was seen to save makes bits, and the budget holds") {
  for (const char* amount : {"1/10 activations", "1/1.9"}) {
    CAPTURE(amount);
    const Config config = config_of(kResNet, amount, {"compression.entropy=true"});
    const Config without = config_of(kResNet, amount);
    Planner planner(planner_options(config)), plain(planner_options(without));
    const auto policy = make_policy(make_choice(config.compression), kCpu, 1),
               other = make_policy(make_choice(without.compression), kCpu, 1);
    auto& budget = *find_in<BudgetPolicy>(*policy);
    auto& codeless = *find_in<BudgetPolicy>(*other);
    planner.adopt(budget);
    plain.adopt(codeless);
    const auto taken = [&] {
      const StepMemory real = real_step(config, policy.get()).memory;
      CHECK((planner.of_activations() ? real.saved() : real.peak) <= planner.limit());
      CHECK(real.saved() <= planner.planned().memory.saved());
      return real;
    };
    const StepMemory first = taken();
    CHECK(!planner.observe(first, budget));
    real_step(without, other.get());
    planner.plan_again(budget);
    plain.plan_again(codeless);
    CHECK(plain.report().entropy_saved_bytes == 0);
    CHECK(planner.planned().variance <= plain.planned().variance);
    if (planner.of_activations()) {  // decoding takes a part of a peak, but not of activations
      CHECK(planner.report().entropy_saved_bytes > 0);
      CHECK(planner.planned().average_bits > plain.planned().average_bits);
      CHECK(planner.planned().variance < 0.8 * plain.planned().variance);
    }
    // Until nothing is new of the widths that were chosen.
    int again = 0;
    while (again < 20 && planner.observe(taken(), budget)) ++again;
    CHECK(again < 20);
    CHECK(planner.planned().memory.saved() <= planner.limit());
  }
}

TEST_CASE("a plan whose expectations are too good is made again") {
  const Config config = config_of(kResNet, "1/10 activations", {"compression.entropy=true"});
  Planner planner(planner_options(config));
  const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
  auto& budget = *find_in<BudgetPolicy>(*policy);
  planner.adopt(budget);
  real_step(config, policy.get());
  planner.plan_again(budget);
  // As if codes had been a third of what they are.
  std::vector<compress::CodedSizes::Entry> sizes = budget.sizes().entries();
  for (auto& entry : sizes) entry.now /= 3, entry.before /= 3;
  budget.sizes().restore(sizes);
  planner.plan_again(budget);
  const double hoped = planner.planned().variance;
  const StepMemory real = real_step(config, policy.get()).memory;
  CHECK(real.saved() <= planner.limit());
  CHECK(planner.observe(real, budget));
  CHECK(planner.planned().variance > hoped);
  CHECK(planner.planned().memory.saved() <= planner.limit());
}

TEST_CASE("sensitivities move bits") {
  const Config config = config_of(kResNet, "1/8 activations");
  Planner planner(planner_options(config));
  const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
  auto& budget = *find_in<BudgetPolicy>(*policy);
  planner.adopt(budget);
  real_step(config, policy.get());
  const auto items = budget.adaptive().items();
  REQUIRE(items.size() > 4);
  for (const auto& item : items)
    budget.adaptive().measured(item.seq, &item == &items[3] ? 1e6 : 1, 1);
  const int before = planner.planned().plan.bits.at(items[3].seq);
  planner.plan_again(budget);
  const auto& bits = budget.plan()->bits;
  CHECK(bits.at(items[3].seq) > before);
  for (const auto& item : items) CHECK(bits.at(item.seq) <= bits.at(items[3].seq));
  CHECK(planner.planned().memory.saved() <= planner.limit());
}

TEST_CASE("a run within a budget stays within it, and goes on where it was") {
  const TempFolder folder;
  Json config = Json::parse(kTinyConfig);
  config["compression"] = {{"memory_budget", "1/2 activations"},
                           {"advanced", {{"min_elements", 96}}},
                           {"gact", {{"interval", 7}}}};
  int steps = 80;
  bool entropy = false;
  SUBCASE("without an entropy stage") {}
  SUBCASE("with one") {
    steps = 40;
    entropy = true;
    config["compression"]["entropy"] = true;
    config["data"]["shape"] = {16, 16, 1};
    config["model"]["hidden"] = {2048, 1024};
    config["train"]["epochs"] = 1;
  }
  write_file(folder / "c.json", config.dump());
  const std::string train = "train " + folder / "c.json" + " --json --out ";
  const Ran whole = apps::frugal(train + folder / "a");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  // Interrupted ever later, it ends with the same bytes.
  int interrupted = 0, status = -1;
  for (double seconds = 0.02; status != 0; seconds *= 1.6) {
    REQUIRE(seconds < 600);
    status =
        shell(fmt::format("timeout -s INT {} FRUGAL {} --resume", seconds, train + folder / "b"))
            .status;
    interrupted += status != 0;
  }
  CHECK(interrupted > 0);
  const std::string last = "/checkpoint/last.safetensors";
  CHECK(read_file(folder / ("a" + last)) == read_file(folder / ("b" + last)));
  CHECK(read_file(folder / "a/metrics.jsonl") == read_file(folder / "b/metrics.jsonl"));
  int plans = 0;
  int64_t limit = 0, saved = 0;
  std::stringstream lines(read_file(folder / "a/metrics.jsonl"));
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text);
    if (line["type"] != "plan") continue;
    ++plans;
    limit = line["limit_bytes"];
    CHECK(line["activation_bytes"] <= line["limit_bytes"]);
    CHECK(line["margin_bytes"] == 0);
    saved += line["entropy_saved_bytes"].get<int64_t>();
  }
  // More where values drifted.
  CHECK(plans >= 1 + steps / 7);
  CHECK((plans == 1 + steps / 7 || entropy));
  CHECK((saved > 0) == entropy);
  const Json memory = Json::parse(whole.out)["memory"];
  CHECK(memory["activation_bytes"] <= limit);
}

TEST_CASE("the search for what fits ends, however few bytes there are") {
  const BudgetPolicy policy{compress::BudgetPolicyOptions{}};
  AdaptivePolicy::Item item;
  item.seq = 0;
  item.elements = 64;
  item.shape = {64, 1};
  item.raw_bytes = 256;
  BudgetPlan plan;
  plan.bits[0] = 1;
  int asked = 0;
  search_bytes(policy, {item}, plan, [&](int64_t bytes) {
    REQUIRE(++asked < 30);
    return bytes < 200;
  });
  CHECK(asked > 1);
}
