// The optimizers. Each takes groups of parameters, or all parameters of a network
// (Module::parameters()). make() (optim/registry.h) makes them by their names.
#pragma once
#include <optional>

#include "core/option.h"
#include "optim/blockwise_options.h"
#include "optim/optimizer.h"
#include "optim/slots.h"

namespace frugal::optim {

// ---- sgd
// Stochastic gradient descent with momentum, Nesterov's variant and weight decay, as PyTorch
// defines them. Ref: Sutskever et al. 2013.

struct SgdOptions {
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<by_name::Option<SgdOptions>> list();
};

// State: "momentum/<parameter>", of the parameter's shape; without momentum there is none.
// Errors: momentum outside [0, 1), Nesterov without momentum.
class Sgd : public SlotOptimizer {
 public:
  explicit Sgd(const std::vector<ParameterGroup>& groups, const SgdOptions& options = {});
  template <NamedParameters P>
  explicit Sgd(const P& parameters, const SgdOptions& options = {})
      : Sgd(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.momentum = checked_momentum(momentum); }
  bool elementwise() const override { return true; }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  bool needs_parts() const override { return options_.momentum != 0; }
  bool counts_steps() const override { return false; }
  void update(const std::vector<Update>& updates) override;

 private:
  SgdOptions options_;
};

// Has it at most one axis? So have biases and the parameters of norms, which weight decay and the
// scales of LAMB and LARS leave out.
inline bool is_one_dimensional(const Variable& parameter) { return parameter.value().dim() <= 1; }

// Makes two groups: parameters with `weight_decay`, and norms and biases (is_one_dimensional())
// without, unless they are to decay, too.
std::vector<ParameterGroup> decay_groups(
    const std::vector<std::pair<std::string, Variable>>& parameters, double weight_decay,
    bool decay_one_dimensional);

// ---- adam
// Adam and AdamW as PyTorch defines them, without amsgrad. The moments have the dtype of the
// parameters.

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  bool decoupled = true;    // AdamW; else the decay is a part of the gradient (Adam)
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<by_name::Option<AdamOptions>> list();
};

// Errors: a beta outside [0, 1), eps below 1e-30. Messages name `op`.
void check_adam_options(const char* op, const AdamOptions& options);

// State: "m/<parameter>" and "v/<parameter>", of the parameter's shape: 8 bytes for each element in
// f32.
// Ref: Kingma & Ba 2015; Loshchilov & Hutter 2019.
class Adam : public SlotOptimizer {
 public:
  explicit Adam(const std::vector<ParameterGroup>& groups, const AdamOptions& options = {});
  template <NamedParameters P>
  explicit Adam(const P& parameters, const AdamOptions& options = {})
      : Adam(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.beta1 = checked_momentum(momentum); }
  bool elementwise() const override { return true; }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  AdamOptions options_;
};

// ---- lamb
// LAMB: the direction of Adam, scaled for each parameter by the norm of its value, for large
// batches.

struct LambOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  // If not set, norms and biases (is_one_dimensional()) take the rate as it is, as in the published
  // runs: they are trained as Adam trains them. If set, they are scaled like all others. Weight
  // decay decides nothing about that.
  bool adapt_one_dimensional = false;
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<by_name::Option<LambOptions>> list();
};

// State: "m/<parameter>" and "v/<parameter>", of the parameter's shape.
// Errors: a beta outside [0, 1), eps below 1e-30.  Ref: You et al. 2020, algorithm 2.
class Lamb : public SlotOptimizer {
 public:
  explicit Lamb(const std::vector<ParameterGroup>& groups, const LambOptions& options = {});
  template <NamedParameters P>
  explicit Lamb(const P& parameters, const LambOptions& options = {})
      : Lamb(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.beta1 = checked_momentum(momentum); }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  LambOptions options_;
};

// ---- lars
// LARS: SGD with momentum whose rate is, for each parameter, relative to the parameter's norm, for
// large batches.

struct LarsOptions {
  double momentum = 0.9;
  double trust = 0.001;  // how far a step may move a parameter, relative to its norm
  // If not set, norms and biases (is_one_dimensional()) take the rate as it is, as in the published
  // runs; decay_groups() leaves them without weight decay. If set, they are scaled like all others.
  bool adapt_one_dimensional = false;
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<by_name::Option<LarsOptions>> list();
};

// State: "velocity/<parameter>", of the parameter's shape. It holds whole steps, rates included.
// Errors: a momentum outside [0, 1), trust not above 0.  Ref: You, Gitman, Ginsburg 2017.
class Lars : public SlotOptimizer {
 public:
  explicit Lars(const std::vector<ParameterGroup>& groups, const LarsOptions& options = {});
  template <NamedParameters P>
  explicit Lars(const P& parameters, const LarsOptions& options = {})
      : Lars(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.momentum = checked_momentum(momentum); }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  LarsOptions options_;
};

// ---- adafactor
// Adafactor: keeps the second moments of a matrix as one row and one column, and no first moments.
// So it has almost no state.

struct AdafactorOptions {
  double decay_rate = 0.8;  // beta2 of step t is 1 - t^-decay_rate
  double clip = 1;          // the largest allowed root mean square of a direction
  // If set, a step is the rate times the root mean square of the parameter (at least 1e-3). The
  // rate is then relative; the paper uses min(1e-2, 1 / sqrt(t)). If not, a step is the rate alone.
  bool scale_parameter = true;
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<by_name::Option<AdafactorOptions>> list();
};

// Weight decay is decoupled, as in AdamW. State of a parameter with at least 2 axes:
// "r/<parameter>" [size(0)] and "c/<parameter>" [the other axes]. State of any other parameter:
// "v/<parameter>" of its shape.
// Errors: decay_rate or clip not above 0.  Ref: Shazeer & Stern 2018.
class Adafactor : public SlotOptimizer {
 public:
  explicit Adafactor(const std::vector<ParameterGroup>& groups,
                     const AdafactorOptions& options = {});
  template <NamedParameters P>
  explicit Adafactor(const P& parameters, const AdafactorOptions& options = {})
      : Adafactor(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  AdafactorOptions options_;
};

// ---- lion
// Lion: each element moves by the learning rate, in the direction of the sign of a mean of
// gradients. Its state is one moment, in full precision or in 8 bits (1.02 bytes for each element).
// Usual rates are 3 to 10 times lower than AdamW's, and the weight decay as many times higher.

struct LionOptions {
  double beta1 = 0.9;                          // the share of the moment in the direction
  double beta2 = 0.99;                         // the decay of the moment
  double weight_decay = 0;                     // the decay of groups that name none
  std::optional<BlockwiseOptions> state = {};  // set: the moment has 8 bits

  static std::vector<by_name::Option<LionOptions>> list();
};

// Weight decay is decoupled, as in AdamW. State: "m/<parameter>" of the parameter's shape; in 8
// bits "m8/" [n] u8 and "m_scales/" [ceil(n / 256)] f32.
// Errors: a beta outside [0, 1); those of check_blockwise_options().  Ref: Chen et al. 2023;
// Dettmers et al. 2022.
class Lion : public SlotOptimizer {
 public:
  explicit Lion(const std::vector<ParameterGroup>& groups, const LionOptions& options = {});
  template <NamedParameters P>
  explicit Lion(const P& parameters, const LionOptions& options = {})
      : Lion(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.beta1 = checked_momentum(momentum); }
  bool elementwise() const override { return !options_.state; }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  bool is_packed(const Slot& slot) const {
    return options_.state && is_blockwise(*options_.state, slot.name, slot.parameter);
  }
  LionOptions options_;
};

// ---- sgd8bit
// Stochastic gradient descent with 8-bit momentum (ops/optimizer/blockwise.h): 1.02 bytes for each
// element instead of 4.

struct Sgd8bitOptions {
  SgdOptions sgd = {};
  BlockwiseOptions state = {};

  static std::vector<by_name::Option<Sgd8bitOptions>> list();
};

// State of a parameter of n elements: "momentum8/" [n] u8 and "momentum_scales/" [ceil(n / 256)]
// f32. State in full precision: "momentum/", as for Sgd.
// Errors: those of Sgd; a momentum of 0, because Sgd has no state then; a negative least_elements.
// Ref: Dettmers et al. 2022.
class Sgd8bit : public SlotOptimizer {
 public:
  explicit Sgd8bit(const std::vector<ParameterGroup>& groups, const Sgd8bitOptions& options = {});
  template <NamedParameters P>
  explicit Sgd8bit(const P& parameters, const Sgd8bitOptions& options = {})
      : Sgd8bit(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override {
    options_.sgd.momentum = checked_momentum(momentum);
  }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  Sgd8bitOptions options_;
};

// ---- adam8bit
// Adam and AdamW with 8-bit moments (ops/optimizer/blockwise.h): 2.03 bytes for each element
// instead of 8.

struct Adam8bitOptions {
  AdamOptions adam = {};
  BlockwiseOptions state = {};

  static std::vector<by_name::Option<Adam8bitOptions>> list();
};

// State of a parameter of n elements: "m8/", "v8/" [n] u8 and "m_scales/", "v_scales/" [ceil(n /
// 256)] f32. State in full precision: "m/" and "v/", as for Adam.
// Errors: those of Adam; a negative least_elements.  Ref: Dettmers et al. 2022.
class Adam8bit : public SlotOptimizer {
 public:
  explicit Adam8bit(const std::vector<ParameterGroup>& groups, const Adam8bitOptions& options = {});
  template <NamedParameters P>
  explicit Adam8bit(const P& parameters, const Adam8bitOptions& options = {})
      : Adam8bit(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.adam.beta1 = checked_momentum(momentum); }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  Adam8bitOptions options_;
};

}  // namespace frugal::optim
