// PackPlan: what a policy that plans bytes tells the wrappers around it (entropy_policy.h,
// offload_policy.h), tensor by tensor.
//
// Without a PackPlan inside, the wrappers code and move all that they can.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "autograd/saved_tensor.h"

namespace frugal::compress {

class PackPlan {
 public:
  virtual ~PackPlan() = default;

  // How the packed bytes of one tensor are to be kept.
  struct Keeping {
    bool coded = true;
    std::optional<int64_t> most_bytes;  // the limit of what coding gives; none: no limit
    bool moved = false;                 // its codes go to the file
  };
  virtual Keeping keeping(uint64_t seq) const = 0;

  // The width that the tensor was packed at, if its size is of interest for later plans.
  virtual std::optional<int> width(uint64_t seq) const = 0;
  // Tells the plan that coding gave so many bytes at `bits`.
  virtual void took(uint64_t seq, int bits, int64_t bytes) = 0;
  // Packs the tensor of this step again, at fewer bits.
  virtual std::unique_ptr<Packed> pack_again(const Tensor& tensor, const SaveInfo& info,
                                             int bits) const = 0;

  // The wrappers say that they are there. A plan counts on no wrapper that is not.
  void set_codes() { codes_ = true; }
  void set_moves() { moves_ = true; }
  bool can_code() const { return codes_; }
  bool can_move() const { return moves_; }

 private:
  bool codes_ = false, moves_ = false;
};

}  // namespace frugal::compress
