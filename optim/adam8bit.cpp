#include "optim/adam8bit.h"

#include <algorithm>

#include "ops/optimizer/adam8bit.h"

namespace frugal::optim {
namespace {

// FNV-1a. It is the same on every machine, unlike std::hash.
uint64_t hash(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace

Adam8bit::Adam8bit(const std::vector<ParameterGroup>& groups, const Adam8bitOptions& options)
    : SlotOptimizer("adam8bit", groups, options.adam.weight_decay), options_(options) {
  check_adam_options("adam8bit", options.adam);
  FRUGAL_CHECK(options.least_elements >= 0,
               "[adam8bit] expected least_elements of at least 0, got {}", options.least_elements);
}

bool Adam8bit::is_packed(const Slot& slot) const {
  const auto& names = options_.full_precision;
  return slot.parameter.value().numel() >= options_.least_elements &&
         std::none_of(names.begin(), names.end(), [&](const std::string& part) {
           return slot.name.find(part) != std::string::npos;
         });
}

std::vector<SlotOptimizer::Part> Adam8bit::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  if (!is_packed(slot))
    return {{"m", value.shape(), value.dtype()}, {"v", value.shape(), value.dtype()}};
  const int64_t n = value.numel(), blocks = (n + ops::kStateBlock - 1) / ops::kStateBlock;
  return {{"m8", {n}, DType::u8},
          {"m_scales", {blocks}, DType::f32},
          {"v8", {n}, DType::u8},
          {"v_scales", {blocks}, DType::f32}};
}

void Adam8bit::update(const std::vector<Update>& updates) {
  const AdamOptions& o = options_.adam;
  std::vector<ops::AdamUpdate> whole;
  std::vector<ops::Adam8bitUpdate> packed;
  for (const Update& u : updates) {
    const Slot& slot = *u.slot;
    const ops::AdamStep step{u.lr,        o.beta1,   o.beta2, o.eps, slot.weight_decay,
                             o.decoupled, slot.steps};
    const Tensor& value = slot.parameter.value();
    const std::vector<Tensor>& parts = slot.parts;
    if (!is_packed(slot)) {
      whole.push_back({value, u.gradient(), parts[0], parts[1], step});
      continue;
    }
    packed.push_back({value,
                      u.gradient(),
                      {parts[0], parts[1], ops::StateMap::with_sign},
                      {parts[2], parts[3], ops::StateMap::positive},
                      step,
                      {options_.seed ^ hash(slot.name), static_cast<uint64_t>(slot.steps)}});
  }
  ops::adam8bit_steps(packed);
  ops::adam_steps(whole);
}

}  // namespace frugal::optim
