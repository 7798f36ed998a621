// Frozen weights in few bits (ops/dense/packed_matrix.h): the weights of linear products that do
// not train. They are no parameters then, and their parts are buffers.
// Ref: Dettmers, Pagnoni, Holtzman, Zettlemoyer 2023 (QLoRA).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/option.h"
#include "models/init.h"
#include "models/module.h"
#include "ops/dense/packed_matrix.h"

namespace frugal::models {

struct PackOptions {
  ops::MatrixFormat format = ops::MatrixFormat::f32;  // f32: nothing is packed
  // Patterns of names (models/name_pattern.h), as freeze() takes them: "!" takes weights out again.
  // Empty: all.
  std::vector<std::string> layers;

  static std::vector<by_name::Option<PackOptions>> list();
};

// The names of the weights that pack() packs: those of linear products that require no gradient and
// fit the patterns. The last layer is never packed (Module::head_prefix), because losses read its
// weight as a whole.
// Errors: no such weight requires no gradient; a pattern that fits no such weight, but one that
// trains, or the last layer's, or none.
std::vector<std::string> packable_names(Module& model, const PackOptions& options);

// Packs these weights, one after the other. `later`: draws that weights on `meta` wait for.
// Errors: those of packable_names(); weights that are not finite.
void pack(Module& model, const PackOptions& options, const LaterDraws* later = nullptr);

// Packs as bf16 what pack() may pack and whose values are all numbers of bf16, as they are in the
// files of most published models: in half the bytes, the values stay. Weights of trained layers are
// packed, too, and train no longer.
void pack_exact(Module& model);
// Are all values of an f32 matrix on the CPU numbers of bf16?
bool fits_bf16(const Tensor& matrix);

// How many weights are packed.
int64_t packed_weights(Module& model);

// make(init), packed. The whole weights that are packed are never there at once. `make` freezes
// what does not train. It is called twice, first on `meta`.
std::shared_ptr<Module> make_packed(const std::function<std::shared_ptr<Module>(Init&)>& make,
                                    Init& init, const PackOptions& options);

}  // namespace frugal::models
