#include "train/convergence.h"

#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "apps/cli/report.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "tests/apps/find_in.h"
#include "tests/apps/gradient_of.h"
#include "tests/apps/run.h"
#include "tests/train/task_of.h"
#include "train/gradient_noise.h"

using namespace frugal;
using namespace frugal::apps;

namespace {

constexpr int64_t kBatch = 64;

// A small network on noise, its weights moved by plain steps.
struct Problem {
  Config config;
  std::shared_ptr<Module> model;
  std::unique_ptr<data::BatchSource> loader;
  std::unique_ptr<SavePolicy> policy;
  std::unique_ptr<Optimizer> optimizer;
  TrackingOptions options;

  explicit Problem(const std::string& compression, double lr = 0.01,
                   const std::string& network = R"({"name": "resnet20", "shortcut": "A"})") {
    config = parse_config(Json::parse(
        R"({"model": )" + network +
        R"(, "data": {"name": "random", "shape": [8, 8, 3], "classes": 4, "batch_size": 64,
               "train_samples": 2048, "workers": 0}, "compression": )" +
        compression + "}"));
    config.compression.min_elements = network.find("mlp") == network.npos
                                          ? 8192
                                          : 4095;  // a whole batch's are larger, a part's are not
    config.optim.lr = lr;
    resolve(config);
    model = make_model(config, {{8, 8, 3}, 0}, kCpu);
    loader = make_batches(config, Split::train);
    policy = make_policy(make_choice(config.compression), kCpu, 0);
    optimizer = make_optimizer(config, *model);
    options = tracking_options(config).value();
  }
  Batch next() {
    std::optional<Batch> batch = loader->next();
    return batch ? *batch : *loader->next();
  }
  std::vector<float> gradient(const Batch& batch, uint64_t number, bool packed) {
    return gradient_of(*model, batch, packed ? policy.get() : nullptr, number);
  }
  // Whether the tracking changed bits.
  bool step(Tracking& tracking, int64_t number, bool track) {
    const Batch batch = next();
    model->zero_grad();
    if (track) tracking.before(batch, number);
    gradient(batch, static_cast<uint64_t>(number), true);
    optimizer->step(config.optim.lr);
    tracking.stepped(config.optim.lr, 1);
    return track && tracking.after(number);
  }
};

std::vector<Json> convergence_lines(const std::string& metrics) {
  std::vector<Json> found;
  std::stringstream lines(read_file(metrics));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json["type"] == "convergence") found.push_back(json);
  }
  return found;
}

}  // namespace

TEST_CASE("a few samples tell the variances of whole batches") {
  for (
      const char* compression :
      {R"({"bits": 2, "advanced": {"track_interval": 1, "track_samples": 16}})",
       R"({"level": "L2.2", "advanced": {"track_interval": 1, "track_samples": 16}, "gact": {"samples": 16}})"}) {
    CAPTURE(compression);
    Problem p(compression, 1e-4);  // weights that hardly move
    Tracking tracking(classification(), *p.model, *p.policy, p.options);
    for (int64_t i = 1; i <= 8; ++i) p.step(tracking, i, true);
    const Batch batch = p.next();
    GradientNoise rounding(p.gradient(batch, 0, false));
    for (uint64_t draw = 0; draw < 12; ++draw) rounding.add(p.gradient(batch, draw, true));
    const std::vector<float> first = p.gradient(p.next(), 0, false);
    GradientNoise sampling(std::vector<float>(first.size(), 0.0f));
    for (int i = 0; i < 16; ++i) sampling.add(p.gradient(p.next(), 0, false));
    const double added = tracking.tracker().added_variance() / rounding.variance().value;
    const double minibatch = tracking.tracker().minibatch_variance() / sampling.variance().value;
    CAPTURE(added);
    CAPTURE(minibatch);
    CHECK(added < 1.5);
    CHECK(added > 1 / 1.5);
    CHECK(minibatch < 1.5);
    CHECK(minibatch > 1 / 1.5);
  }
}

TEST_CASE("smoothness is the change of the exact gradient over that of the weights") {
  Problem p(R"({"level": "L0", "advanced": {"track_interval": 1}})", 1e-3);
  Tracking tracking(classification(), *p.model, *p.policy, p.options);
  const Batch batch = p.next(), part{batch.input.slice(0, 0, 32), batch.target.slice(0, 0, 32)};
  auto weights = [&] {
    std::vector<double> all;
    for (const auto& each : p.model->parameters())
      for (double v : each.parameter->value().to_vector()) all.push_back(v);
    return all;
  };
  auto squares = [](const auto& a, const auto& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i)
      sum += (static_cast<double>(a[i]) - static_cast<double>(b[i])) *
             (static_cast<double>(a[i]) - static_cast<double>(b[i]));
    return sum;
  };
  const std::vector<double> w0 = weights();
  const std::vector<float> g0 = p.gradient(part, 0, false);
  p.model->zero_grad();
  tracking.before(batch, 1);
  p.gradient(batch, 1, false);
  p.optimizer->step(1e-3);
  tracking.after(1);
  const double beta = std::sqrt(squares(p.gradient(part, 0, false), g0) / squares(weights(), w0));
  CHECK(tracking.tracker().smoothness() == doctest::Approx(beta).epsilon(0.1));
  CHECK(tracking.tracker().added_variance() == 0);
  CHECK(to_json(tracking.report())["bits"].is_null());
}

TEST_CASE("measuring leaves no trace") {
  Problem p(R"({"level": "L2.2", "advanced": {"track_interval": 1}})");
  Tracking tracking(classification(), *p.model, *p.policy, p.options);
  const Batch batch = p.next();
  p.gradient(batch, 0, true);
  p.model->zero_grad();
  auto state = [&] {
    std::vector<double> all;
    for (const auto& each : p.model->parameters())
      for (double v : each.parameter->value().to_vector()) all.push_back(v);
    return all;
  };
  const std::vector<double> before = state();
  const auto* adaptive = find_in<compress::AdaptivePolicy>(*p.policy);
  const size_t items = adaptive->items().size();
  int64_t gradients = 0;
  for (const auto& each : p.model->parameters()) gradients += each.parameter->value().nbytes();
  allocator(kCpu).reset_peak();
  tracking.before(batch, 1);
  tracking.after(1);
  const MemoryReport report = allocator(kCpu).report();
  CHECK(state() == before);
  CHECK(adaptive->items().size() == items);
  CHECK(report.of(Category::gradient) == 0);
  CHECK(report.of(Category::packed) == 0);
  // No copy of the gradients, nor ever all of them.
  const int64_t activations = 4 * 32 * 8 * 8 * 16 * 4;
  CHECK(report.peak[static_cast<size_t>(Category::gradient)] < gradients + activations);
  CHECK(tracking.tracker().measurements() == 1);
  // One sample cannot be cut in two.
  tracking.before({batch.input.slice(0, 0, 1), batch.target.slice(0, 0, 1)}, 2);
  CHECK(!tracking.after(2));
  CHECK(tracking.tracker().measurements() == 1);
  // Values that are not finite are not measured either.
  Tensor(p.model->parameters().front().parameter->value()).mut<float>()[0] = NAN;
  tracking.before(batch, 3);
  CHECK(!tracking.after(3));
  CHECK(tracking.tracker().measurements() == 1);
}

TEST_CASE("the guard raises bits that are too few, lowers those that are too many, and resumes") {
  struct Row {
    const char* compression;
    bool rises;
  };
  for (const Row& row :
       {Row{R"({"bits": 1, "guard": 0.02, "advanced": {"track_interval": 1}})", true},
        Row{R"({"bits": 12, "guard": 0.02, "advanced": {"track_interval": 1}})", false},
        Row{R"({"level": "L2", "bits": 10, "guard": 0.02})", false}}) {
    CAPTURE(row.compression);
    const std::string mlp = R"({"name": "mlp", "hidden": [128, 64]})";
    Problem p(row.compression, 1e-4, mlp), q(row.compression, 1e-4, mlp);
    Tracking tracking(classification(), *p.model, *p.policy, p.options);
    auto resumed = std::make_unique<Tracking>(classification(), *q.model, *q.policy, q.options);
    p.step(tracking, 1, false);
    q.step(*resumed, 1, false);
    const double start = tracking.state()[0];
    for (int64_t i = 2; i <= 24; ++i) {
      p.step(tracking, i, true);
      q.step(*resumed, i, true);
      if (i != 9) continue;
      const std::vector<double> state = resumed->state();
      const auto* adaptive = find_in<compress::AdaptivePolicy>(*q.policy);
      const auto widths = adaptive != nullptr ? std::optional(adaptive->state()) : std::nullopt;
      q.policy = make_policy(make_choice(q.config.compression), kCpu, 0);
      resumed = std::make_unique<Tracking>(classification(), *q.model, *q.policy, q.options);
      resumed->restore(state);
      if (widths) find_in<compress::AdaptivePolicy>(*q.policy)->restore(*widths);
      CHECK_THROWS_AS(resumed->restore({1, 2}), Error);
    }
    CHECK(resumed->state() == tracking.state());
    CHECK(to_json(resumed->report()) == to_json(tracking.report()));
    const Json json = to_json(tracking.report());
    CAPTURE(json.dump());
    CHECK(json["added_share"] < 0.02 * 1.3);
    CHECK(json["added_share"] > 0.0002);
    CHECK((json["bits"] > start) == row.rises);
  }
}

TEST_CASE("when to measure, and settings that contradict each other") {
  Problem p(R"({"advanced": {"track_interval": 40}})"), guarded(R"({"guard": 0.1})");
  const Tracking tracking(classification(), *p.model, *p.policy, p.options);
  CHECK(!tracking.due(1));
  CHECK(!tracking.due(20));
  CHECK(tracking.due(40));
  CHECK(tracking.due(80));
  const Tracking early(classification(), *guarded.model, *guarded.policy, guarded.options);
  for (const int64_t step : {25, 50, 100, 200, 400}) CHECK(early.due(step));
  CHECK(!early.due(300));
  Config none = p.config;
  none.compression.track_interval = 0;
  CHECK(!tracking_options(none));
  for (
      const char* compression :
      {R"({"level": "L0", "advanced": {"track_interval": 1}})",
       R"({"policy": "actnn", "level": "L0", "advanced": {"track_interval": 1}})",
       R"({"policy": "acgc", "advanced": {"rounding": "nearest", "track_interval": 1}})",
       R"({"policy": "acgc", "acgc": {"rule": "published"}, "advanced": {"track_interval": 1}})"}) {
    Problem raw(compression);
    raw.options.guard = 0.1;
    CHECK_THROWS_WITH_AS(Tracking(classification(), *raw.model, *raw.policy, raw.options),
                         doctest::Contains("compression.guard: expected a policy with a width"),
                         ConfigError);
  }
  guarded.options.least_bits = 6;
  CHECK_THROWS_WITH_AS(
      Tracking(classification(), *guarded.model, *guarded.policy, guarded.options),
      doctest::Contains("compression.advanced.guard_min_bits: expected at most the 4 bits"),
      ConfigError);
}

TEST_CASE("a watched run trains as one that is not, and writes what it saw") {
  for (const Json& keep :
       {Json{{"level", "L1.2"}}, Json{{"level", "L2.1"}, {"gact", {{"interval", 9}}}},
        Json{{"policy", "actnn"}, {"level", "L3"}, {"actnn", {{"interval", 9}}}},
        Json{{"policy", "acgc"}, {"acgc", {{"interval", 9}}}},
        Json{{"memory_budget", "1/6 activations"}, {"gact", {{"interval", 9}}}}}) {
    CAPTURE(keep.dump());
    const TempFolder folder;
    Json config = Json::parse(kTinyConfig);
    config["compression"] = keep;
    config["compression"]["advanced"]["min_elements"] = 96;
    const bool sgd = !keep.contains("level");
    config["optim"] = {{"name", sgd ? "sgd" : "adam"}, {"lr", sgd ? 0.05 : 0.003}};
    write_file(folder / "c.json", config.dump());
    const std::string train = "train " + folder / "c.json" + " --json --out ";
    const Ran plain = apps::frugal(train + folder / "a");
    const Ran watched =
        apps::frugal(train + folder / "b" + " --set compression.advanced.track_interval=10");
    REQUIRE_MESSAGE(watched.status == 0, watched.err);
    CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
          read_file(folder / "b/checkpoint/last.safetensors"));
    Json a = Json::parse(plain.out), b = Json::parse(watched.out);
    CHECK(a["final"] == b["final"]);
    CHECK(!a.contains("convergence"));
    CHECK(a["speed"]["tracking_share"] == 0);
    CHECK(b["speed"]["tracking_share"] > 0);
    const std::vector<Json> lines = convergence_lines(folder / "b/metrics.jsonl");
    REQUIRE(lines.size() == 8);
    CHECK(lines[1]["step"] == 20);
    CHECK(lines[7]["minibatch_variance"] > 0);
    CHECK(lines[7]["added_variance"] > 0);
    CHECK(b["convergence"]["bound"] == lines[7]["bound"]);
    CHECK(b["convergence"]["bound"].is_null() == !sgd);
    if (keep.value("policy", "gact") == "gact" && !sgd)
      CHECK(b["convergence"]["bits"] == (keep["level"] == "L1.2" ? 2 : 3));
    const Ran shown = apps::frugal("compare " + folder / "b");
    CHECK(shown.out.find("compression adds") != std::string::npos);
    CHECK(apps::frugal("compare " + folder / "a").out.find("compression adds") ==
          std::string::npos);
  }
}

TEST_CASE("a guarded run that was stopped goes on as if it had not been") {
  const TempFolder folder;
  Json config = Json::parse(kTinyConfig);
  config["compression"] = {{"level", "L1.1"},
                           {"guard", 0.1},
                           {"advanced", {{"min_elements", 96}, {"track_interval", 5}}}};
  config["train"]["epochs"] = 3;
  config["train"]["checkpoint_interval"] = 20;
  write_file(folder / "c.json", config.dump());
  const std::string train = "train " + folder / "c.json" + " --json --resume --out ";
  const Ran whole = apps::frugal(train + folder / "a");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  apps::shell("FRUGAL " + train + folder / "b" +
              R"( & p=$!; while kill -0 $p && ! grep -q '"step":50}' )" +
              folder / "b/metrics.jsonl" + "; do sleep 0.002; done; kill -KILL $p; wait $p");
  const Ran resumed = apps::frugal(train + folder / "b" + " --set threads=2");
  REQUIRE_MESSAGE(resumed.status == 0, resumed.err);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "b/checkpoint/last.safetensors"));
  CHECK(apps::results_in(folder / "a/metrics.jsonl") ==
        apps::results_in(folder / "b/metrics.jsonl"));
  const std::vector<Json> lines = convergence_lines(folder / "a/metrics.jsonl");
  CHECK(lines.back()["bits"] < 8);

  const Ran refused = apps::frugal(train + folder / "c" + " --set compression.level=L0");
  CHECK(refused.status == 2);
  CHECK(refused.err.find("compression.guard: expected") != std::string::npos);
}

TEST_CASE("policies side by side: ranges that mix channels lose most, a budget gains most") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "resnet20"}, "data": {"name": "random",
      "batch_size": 8, "shape": [8, 8, 3], "workers": 0, "train_samples": 256},
      "compression": {"advanced": {"min_elements": 256}}, "threads": 1})");
  const Ran ran = apps::frugal_lab("gradient " + folder / "c.json" +
                                   " --policies --train-steps 2 --batches 8 --repeats 8 --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  std::map<std::string, Json> rows;
  const Json document = Json::parse(ran.out);
  for (const Json& row : document["policies"]) {
    CHECK(row["bits"] == 2);
    CHECK(row["bits_per_element"] > 2);
    rows[row["policy"]] = row;
  }
  REQUIRE(rows.size() == 9);
  auto variance = [&](const char* name) {
    return rows.at(name)["variance"]["value"].get<double>();
  };
  const char* ours = "budget, the bytes of groups in a channel";
  CHECK(variance("a range per 65536 neighbours") > 1.5 * variance("a range per 256 neighbours"));
  CHECK(variance("a range per 256 neighbours") > variance("groups in a channel"));
  CHECK(variance("groups in a channel") > 4 * variance(ours));
  CHECK(rows[ours]["activation_bytes"] <= rows["groups in a channel"]["activation_bytes"]);
  CHECK(rows["acgc, e = 1"]["squared_bias"]["value"] > 0);  // rounds to nearest
}
