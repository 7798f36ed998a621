// Which parameters keep the state of an 8-bit optimizer in 8 bits (ops/optimizer/blockwise.h), and
// how this state rounds.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/variable.h"
#include "core/rng.h"

namespace frugal::optim {

// Texts in the names of embeddings, as BERT, Llama, GPT-2 and vision transformers have them.
std::vector<std::string> embedding_names();

struct BlockwiseOptions {
  // Parameters with fewer elements keep their state in their own dtype: they need little memory,
  // and their precision matters more.
  int64_t least_elements = 4096;
  // Parameters whose name contains one of these texts keep their state in their own dtype, too. By
  // default these are embeddings, because the gradients of their rows differ in size by orders of
  // magnitude.
  std::vector<std::string> full_precision = embedding_names();
  // Whole names of embeddings whose names do not say what they are: models::table_names().
  std::vector<std::string> tables = {};
  // Seed of the stochastic rounding, which also depends on the parameter's name and its number of
  // steps.
  uint64_t seed = 0;
};

// Errors: a negative least_elements. Messages name `op`.
void check_blockwise_options(const char* op, const BlockwiseOptions& options);
// Is the state of this parameter in 8 bits?
bool is_blockwise(const BlockwiseOptions& options, const std::string& name,
                  const Variable& parameter);
// The key of one step of one parameter.
RngKey rounding_key(const BlockwiseOptions& options, const std::string& name, int64_t step);

}  // namespace frugal::optim
