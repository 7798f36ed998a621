#include "ops/onednn.h"

namespace frugal::ops::onednn {
namespace {

constexpr size_t kPlans = 1024;  // per thread; a network has far fewer problems

dnnl::memory memory_of(const Desc& layout, const void* data) {
  return dnnl::memory(layout, engine(), const_cast<void*>(data));
}

Tensor bytes(const Desc& layout) {
  CategoryScope scope(Category::workspace);
  return Tensor::empty({static_cast<int64_t>(layout.get_size())}, DType::u8);
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  thread_local dnnl::stream cpu(engine());
  return cpu;
}

Desc desc(const std::vector<int64_t>& dims, Tag tag) {
  return Desc(dims, dnnl::memory::data_type::f32, tag);
}

Desc desc(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
  return Desc(dims, dnnl::memory::data_type::f32, strides);
}

const Plan& cached_plan(std::string key, std::function<Plan()> make) {
  thread_local std::unordered_map<std::string, Plan> plans;
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  if (plans.size() >= kPlans) plans.clear();
  return plans.emplace(std::move(key), make()).first->second;
}

void execute(const Plan& plan, std::initializer_list<Argument> inputs,
             std::initializer_list<Argument> outputs) {
  std::unordered_map<int, dnnl::memory> arguments;
  std::vector<Tensor> copies;
  std::vector<std::pair<dnnl::memory, dnnl::memory>> after;
  auto bind = [&](const Argument& argument, bool input) {
    const dnnl::memory given = memory_of(argument.layout, argument.data);
    const auto wanted = plan.wanted.find(argument.id);
    if (wanted == plan.wanted.end() || wanted->second == argument.layout) {
      arguments.emplace(argument.id, given);
      return;
    }
    copies.push_back(bytes(wanted->second));
    const dnnl::memory copy = memory_of(wanted->second, copies.back().raw());
    if (input)
      dnnl::reorder(given, copy)
          .execute(stream(), const_cast<dnnl::memory&>(given), const_cast<dnnl::memory&>(copy));
    else
      after.emplace_back(copy, given);
    arguments.emplace(argument.id, copy);
  };
  for (const Argument& argument : inputs) bind(argument, true);
  for (const Argument& argument : outputs) bind(argument, false);
  Tensor scratchpad;
  if (plan.scratchpad.get_size() > 0) {
    scratchpad = bytes(plan.scratchpad);
    arguments.emplace(DNNL_ARG_SCRATCHPAD, memory_of(plan.scratchpad, scratchpad.raw()));
  }
  plan.primitive.execute(stream(), arguments);
  for (auto& [from, to] : after) dnnl::reorder(from, to).execute(stream(), from, to);
  stream().wait();
}

}  // namespace frugal::ops::onednn
