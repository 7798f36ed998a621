// The tensors of a module with PyTorch's names and layouts, for files.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/module.h"
#include "models/position_grid.h"

namespace frugal::models {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Converts a tensor that has the shape of a parameter (the parameter or its gradient) to the layout
// of files, and back. conv_weight: [K, R, S, C] here, [K, C, R, S] in files. transposed_linear:
// [out, in] here, [in, out] in files. The results are contiguous copies; those for files are on the
// host.
Tensor to_file_layout(const Tensor& tensor, Module::Layout layout);
Tensor from_file_layout(const Tensor& tensor, Module::Layout layout);

// All parameters, then all buffers, in registration order; without the frozen parameters if
// Module::leaves_out_frozen(). The tensors are copies on the host.
NamedTensors state_dict(Module& module);
// The tensors of state_dict() as views of the module's own, on their device, for writing files
// without a copy.
NamedTensors state_views(Module& module);

struct StateOptions {
  // The last layer (Module::head_prefix) keeps its values, and that of the file is left out: for a
  // network with other classes. This also holds for the last layer of a second head
  // (ResizedModule). A pooler that the file lacks keeps its values, too.
  bool reset_head = false;
  // Learned positions of another grid are interpolated: the positions of a ViT for pictures of
  // another size (its class token's stays), and the tables of a Swin for windows of another size.
  // Without `sampling`, as the library does whose names the file has (sampling_of()).
  bool resize_positions = false;
  std::optional<GridSampling> sampling = {};
  // The tensors are those of the network without its adapters (models/adapters), which keep their
  // values, whatever Module::leaves_out_frozen() says.
  bool without_adapters = false;
};
// Names of tensors of the module that were not filled, and of tensors of the file that were not
// taken.
struct StateNotes {
  std::vector<std::string> reset;      // the module's, which kept their values with reset_head
  std::vector<std::string> left_out;   // the file's last layer, with reset_head
  std::vector<std::string> ignored;    // the file's, on which no result depends
  std::vector<std::string> uncounted;  // the module's counters of batches that the file lacks
  struct Resized {
    std::string name;          // the name in the module
    int64_t from = 0, to = 0;  // sides of the grids
  };
  std::vector<Resized> resized;  // positions of another grid, with resize_positions
  // The classes of the module's and of the file's last layer, with reset_head. 0: unknown.
  int64_t classes = 0, classes_of_file = 0;
  // Is each tensor that the module takes one of the given ones, and not made of several or resized?
  bool as_given = true;
};

// The values of a tensor of a state that is on `meta`, when they are needed.
using ReadTensor = std::function<Tensor(const Tensor& described)>;

// The error of weights whose names or shapes are those of another network.
class OtherNetwork : public Error {
 public:
  using Error::Error;
};

// Fills every parameter and buffer in place. bf16, f16 and f64 are cast to the dtype of the module,
// and narrower integers to wider ones; no other casts are made. Names of published files are
// understood (models/published_names.h). `from` names the file in messages. Errors: one message
// with counts that lists the first ten of the missing and of the unexpected names, and of the wrong
// shapes and dtypes; where only the classes differ, both numbers of them (both OtherNetwork);
// reset_head for a module without a head. The module is then unchanged.
//
// A weight that the module has packed (models/pack.h) is packed from a whole one, or taken as it is
// from a state that has it in the same format; a whole one is unpacked from a packed one.
//
// `read`, if given, is asked for the values of each tensor of `state` that is on `meta` when they
// are needed, so that one is in memory at a time.  REQUIRES of it: StateNotes::as_given.
StateNotes load_state_dict(Module& module, const NamedTensors& state, const std::string& from = "",
                           const StateOptions& options = {}, const ReadTensor& read = {});

// Only the checks of load_state_dict(). The tensors may be on `meta`.
StateNotes check_state_dict(Module& module, const NamedTensors& state, const std::string& from = "",
                            const StateOptions& options = {});

// Casts parameters and floating-point buffers. f64 serves gradient checks.
void to_dtype(Module& module, DType dtype);

}  // namespace frugal::models
