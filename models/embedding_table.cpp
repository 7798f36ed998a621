#include "models/embedding_table.h"

#include <algorithm>

#include "autograd/functions.h"
#include "autograd/transformer_functions.h"
#include "core/error.h"
#include "models/dense.h"
#include "models/sequential_parts.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"

namespace frugal::models {
namespace {

constexpr const char* kTableA = "lora_embedding_A";
constexpr const char* kTableB = "lora_embedding_B";

}  // namespace

EmbeddingTable::EmbeddingTable(Tensor weight, bool is_head)
    : weight_(register_parameter("weight", std::move(weight))), is_head_(is_head) {}

Variable EmbeddingTable::rows(const Tensor& ids) const {
  const Variable y = embedding(ids, weight_);
  if (adapter_ == nullptr) return y;
  return add(y, scale(linear(embedding(ids, adapter_->a), adapter_->b), adapter_->scale));
}

Variable EmbeddingTable::forward(Variable ids, Context&) { return rows(ids.value()); }

void EmbeddingTable::add_adapter(Init& init, int64_t rank, double scale) {
  FRUGAL_CHECK(adapter_ == nullptr,
               "[adapter] expected an embedding without an adapter, got one with");
  const Tensor& weight = weight_.value();
  const auto of_weight = [&](const Tensor& values) {
    const CategoryScope scope(Category::parameter);
    return ops::cast(values, weight.dtype());
  };
  auto adapter = std::make_unique<Adapter>();
  adapter->scale = scale;
  adapter->a = register_parameter(kTableA, of_weight(constant(init, {weight.size(0), rank}, 0)),
                                  Layout::transposed_linear);
  adapter->b = register_parameter(kTableB, of_weight(normal(init, {weight.size(1), rank}, 1)));
  adapter_ = std::move(adapter);
}

void EmbeddingTable::merge_adapter() {
  FRUGAL_CHECK(adapter_ != nullptr,
               "[adapter] expected an embedding with an adapter, got one without");
  FRUGAL_CHECK(!is_head_,
               "[adapter] expected an output head with a weight of its own to merge the adapter of "
               "an embedding, got one that shares the embedding's weight, which would change with "
               "it: untie the head first");
  const Tensor weight = weight_.value();
  const CategoryScope scope(Category::workspace);
  const Tensor b = ops::contiguous(adapter_->b.value().transpose(0, 1));
  const int64_t tokens = weight.size(0),
                step = std::max<int64_t>(1, (int64_t{1} << 20) / weight.size(1));
  for (int64_t begin = 0; begin < tokens; begin += step) {
    const int64_t end = std::min(begin + step, tokens);
    const Tensor rows = weight.slice(0, begin, end);
    const Tensor more = ops::matmul(adapter_->a.value().slice(0, begin, end), b);
    ops::copy_into(rows, ops::add(rows, ops::affine(more, adapter_->scale, 0)));
  }
  weight.bump_version();
  for (const char* name : {kTableA, kTableB}) remove_parameter(name);
  adapter_ = nullptr;
}

std::shared_ptr<Dense> EmbeddingTable::leave_head() {
  is_head_ = false;
  const CategoryScope scope(Category::parameter);
  return std::make_shared<Dense>(ops::clone(weight_.value()));
}

std::vector<std::string> table_names(Module& net) {
  std::vector<std::string> names;
  for (const auto& [name, module] : net.modules())
    if (dynamic_cast<EmbeddingTable*>(module) != nullptr ||
        dynamic_cast<TokenEmbedding*>(module) != nullptr ||
        dynamic_cast<PositionEmbedding*>(module) != nullptr)
      names.push_back(name.empty() ? "weight" : name + ".weight");
  return names;
}

}  // namespace frugal::models
