// Networks that learn from two views of each picture, without labels: SimSiam, BYOL and MoCo v2. A
// trunk of the zoo gives features; a projector and, of SimSiam and BYOL, a predictor stand behind
// it while it learns.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

enum class SelfSupervision : uint8_t {
  simsiam,  // Chen & He 2021: predicts the projection of the other view, whose gradient is stopped
  byol,     // Grill et al. 2020: predicts what a slowly moving copy of the network projects
  moco_v2,  // Chen et al. 2020: tells what the copy projects from a queue of earlier projections
};

// The method called "simsiam", "byol" or "moco_v2". Errors: an unknown name; the message lists the
// known ones.
SelfSupervision self_supervision(const std::string& name);

struct SelfSupervisedOptions {
  SelfSupervision method = SelfSupervision::simsiam;
  std::vector<int64_t> projector;  // widths of its layers; the last one is the projection's
  int64_t predictor = 0;           // hidden units of the predictor; 0: there is none
  double momentum = 0;             // how much of the copy stays in a step
  int64_t queue = 0;               // moco_v2: keys that are kept
  double temperature = 1;          // moco_v2

  // What the method reads beside its trunk and the options of that.
  static std::vector<Option<SelfSupervisedOptions>> list(SelfSupervision method) {
    using S = SelfSupervisedOptions;
    std::vector<Option<S>> all = {
        {{"projector", range::integers(1, 1 << 16, 1, 16),
          "simsiam, byol, moco_v2: widths of the layers behind the trunk; null: the paper's.",
          Key::own},
         &S::projector}};
    if (method != SelfSupervision::moco_v2)
      all.push_back(
          {{"predictor", range::integer(1, 1 << 16),
            "simsiam, byol: hidden units of the layers behind the projector; null: the paper's.",
            Key::own},
           &S::predictor});
    if (method != SelfSupervision::simsiam)
      all.push_back({{"momentum", range::number(0, 1),
                      "byol, moco_v2: how much of the copy that gives targets stays in a step; "
                      "byol's rises from there to 1; null: the paper's, 0.996 and 0.999.",
                      Key::own},
                     &S::momentum});
    if (method != SelfSupervision::moco_v2) return all;
    all.push_back({{"queue", range::integer(1, 1 << 24),
                    "moco_v2: keys of earlier batches to compare with; null: 65536.", Key::own},
                   &S::queue});
    all.push_back({{"temperature", range::divisor(100),
                    "moco_v2: cosines are divided by it; null: 0.2.", Key::own},
                   &S::temperature});
    return all;
  }
};
// The options of the papers, for a trunk of so many features: SimSiam: projector 2048, 2048, 2048,
// predictor 512. BYOL: projector 4096, 256, predictor 4096, momentum 0.996, which rises to 1 in
// the course of training. MoCo v2: projector `features`, 128, momentum 0.999, queue 65536,
// temperature 0.2.
SelfSupervisedOptions published_options(SelfSupervision method, int64_t features);

// What a batch of two views comes to.
struct SelfSupervisedLoss {
  Variable loss;  // scalar
  // moco_v2: [N] f32 or f64: above 0 where a row is more like its own key than like any of the
  // queue's. Undefined of the others.
  Tensor margin;
};

// Children: trunk, projector, predictor; target_trunk and target_projector: the copy, whose
// parameters require no gradient. Buffers of moco_v2: queue [K, D] f32 and queue_next [] i64, the
// row that is written next. Everything that lasts is a parameter or a buffer, so it is in
// checkpoints. Thread safety: none.
class SelfSupervised : public Module {
 public:
  SelfSupervised* as_self_supervised() final { return this; }
  // make_trunk: a network [N, H, W, C] -> [N, features], called once, or twice where there is a
  // copy.
  using TrunkMaker = std::function<std::shared_ptr<Module>(Init& init)>;
  // Errors: features or a width below 1; no projector; a momentum outside [0, 1]; a queue below 1
  // or a temperature below kLeastDivisor of moco_v2.
  SelfSupervised(Init& init, const TrunkMaker& make_trunk, int64_t features,
                 const SelfSupervisedOptions& options);

  // The trunk's features [N, features].
  Variable forward(Variable x, Context& context) override;
  std::string head_prefix() override { return ""; }

  // Brings the rows [N, D] of all processes that share a batch together, in one order everywhere.
  using GatherRows = std::function<Tensor(const Tensor& rows)>;
  // first and second [N, H, W, C]: two views of each picture.
  //   simsiam: (d(p1, z2) + d(p2, z1)) / 2 with d(p, z) = -cos(p, z), p = predictor(z)
  //   byol:    sum of 2 + 2 d(p1, copy's z2) and 2 + 2 d(p2, copy's z1)
  //   moco_v2: info_nce(z1, copy's z2, queue); then the queue takes the copy's projections in the
  //            place of its oldest ones, unless the pass only recomputes or measures.
  // The copy runs first, without a graph: nothing of it is kept.
  // gather: moco_v2 puts the keys of all processes into the queue. Empty: the batch is whole.
  // Errors: views of other shapes.
  SelfSupervisedLoss loss(Variable first, Variable second, Context& context,
                          const GatherRows& gather = {});

  // Moves the copy towards the network: copy += (1 - m) (network - copy). Call it after each
  // update. `progress`: the share of training that is done, in [0, 1]; BYOL's m is
  // 1 - (1 - momentum) (cos(pi progress) + 1) / 2, MoCo's is its momentum. The copy's running
  // statistics are its own. Does nothing for simsiam.
  void follow(double progress);

  // What the losses compare: the projection [N, D] of a view, the predictor's output for one, and
  // what the copy projects, without a graph.
  Variable project(Variable x, Context& context);
  Variable predict(Variable projection, Context& context);
  Tensor copy_projection(const Tensor& x, const Context& context);

  Module& trunk() const { return *trunk_; }
  bool has_copy() const { return target_trunk_ != nullptr; }
  const SelfSupervisedOptions& options() const { return options_; }

 private:
  void enqueue(const Tensor& keys);

  SelfSupervisedOptions options_;
  std::shared_ptr<Module> trunk_, target_trunk_;
  std::shared_ptr<Sequential> projector_, predictor_, target_projector_;
  Tensor *queue_ = nullptr, *next_ = nullptr;
};

}  // namespace frugal::models
