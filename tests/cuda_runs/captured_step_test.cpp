// Steps that are replayed beside the same steps run: which are recorded, and every gradient's bits.
#include "apps/captured_step.h"

#include "apps/config.h"
#include "apps/make_policy.h"
#include "apps/makers.h"
#include "compress/fixed_policy.h"
#include "ops/copy.h"
#include "tests/cuda/gpu.h"

using namespace frugal;
using namespace frugal::apps;

namespace {

constexpr const char* kImages = R"({
  "model": {"name": "resnet20", "width": 4},
  "data": {"name": "random", "batch_size": 4, "shape": [8, 8, 3], "train_samples": 32,
           "test_samples": 4},
  "compression": {"level": "L1", "min_elements": 96}})";

constexpr const char* kEncoder = R"({
  "model": {"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "vocab_size": 60},
  "data": {"name": "random_tokens", "batch_size": 8, "max_length": 12, "classes": 3,
           "train_samples": 64, "test_samples": 16},
  "compression": {"level": "L1", "min_elements": 96}})";

// A model, a policy and batches of a configuration.
struct Side {
  Config config;
  std::shared_ptr<Module> model;
  std::unique_ptr<SavePolicy> policy;
  std::unique_ptr<data::BatchSource> batches;
  Rng rng;
  uint64_t number = 0;

  explicit Side(const char* text, const std::string& set) {
    Json document = Json::parse(text);
    apply_set(document, set);
    document["device"] = "cuda";
    config = parse_config(document);
    resolve(config);
    model = make_model(config, batch_spec(config), set_up_device(config.run));
    policy = make_policy(config.compression, 1);
    batches = make_batches(config, Split::train);
    rng.restore({7, 0});
  }
  // forward(batch, context, number) with a step begun; then all gradients, on the host.
  template <class F>
  std::vector<Tensor> step(const F& forward) {
    model->zero_grad();
    Context context;
    context.rng = &rng;
    begin_step(number);
    std::vector<Tensor> all;
    {
      const BatchResult result = forward(*batches->next(), context, number++);
      all.push_back(Tensor::from<double>({result.loss}, {1}));
    }
    for (const auto& p : model->parameters()) all.push_back(to_device(p.parameter->grad(), kCpu));
    return all;
  }
};

bool equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].to_vector() != b[i].to_vector()) return false;
  return true;
}

}  // namespace

TEST_CASE("replayed steps with packed activations give the gradients of steps that are run") {
  if (!gpu::available()) return;
  const std::vector<std::pair<const char*, std::string>> cases = {
      {kEncoder, "compression.level=L1"},
      {kEncoder, "compression.signs=masks"},
      {kEncoder, "compression.rounding=dithered"},
      {kImages, "compression.level=L1.2"}};
  for (const auto& [text, set] : cases) {
    CAPTURE(set);
    Side run(text, set), recorded(text, set);
    CapturedStep captured(*recorded.model, recorded.policy.get());
    for (int i = 0; i < 6; ++i) {
      CAPTURE(i);
      if (i == 3) {  // another plan: what was recorded is of no use
        for (Side* side : {&run, &recorded})
          find_in<compress::FixedPolicy>(*side->policy)->set_bits(3);
        captured.forget();
      }
      const auto expected = run.step([&](Batch batch, Context& context, uint64_t) {
        return forward_backward(*run.model, std::move(batch), context, run.policy.get(), {});
      });
      const auto got = recorded.step([&](Batch batch, Context& context, uint64_t number) {
        return captured.run(std::move(batch), context, {}, number);
      });
      CHECK(equal(expected, got));
    }
    CHECK(captured.obstacle().empty());
    CHECK(captured.replays() == 4);  // of each three the first is run
  }
}

TEST_CASE("what the host reads in a step is an obstacle, by name") {
  if (!gpu::available()) return;
  Side side(kEncoder, "compression.entropy=true");
  CapturedStep captured(*side.model, side.policy.get());
  for (int i = 0; i < 3; ++i)
    side.step([&](Batch batch, Context& context, uint64_t number) {
      return captured.run(std::move(batch), context, {}, number);
    });
  CHECK(captured.replays() == 0);
  CHECK(captured.obstacle().find("captur") != std::string::npos);
}
