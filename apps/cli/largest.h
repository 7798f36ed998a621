// The largest batch, depth, width or resolution whose step fits into a number of bytes.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "apps/config/config.h"
#include "train/planning/meta_step.h"

namespace frugal::apps {

// What grows. The search tries every `step`-th value only, which the network must accept:
//   batch       data.batch_size, by 8; 1 to 7 where 8 does not fit (rows of masks share bytes, so
//               other batches cannot be read in slices, which takes more)
//   layers      model.layers: by 1; with ResNets from their own number on, by a block
//   width       model.width: by the number of heads; by 4 without heads
//   resolution  the height and width in data.shape, or data.image_size, from 32 on: by 4, with Swin
//               by 32, with ViT by the side of a patch; by 32 first, see SearchRange
enum class Growth : uint8_t { batch, layers, width, resolution };
Growth growth_named(const std::string& name);  // REQUIRES: one of the four names
// The key that grows, such as "data.batch_size". The resolution is "data.image_size" if the run
// reads it, or else "data.shape".
std::string key_of(const Config& config, Growth growth);

struct Largest {
  int64_t value = 0;     // 0: the smallest value does not fit
  int64_t peak = 0;      // bytes of a step with `value`; where it is 0, with the smallest value
  bool limited = false;  // `value` is the largest that the key may have
};

// The values that a search may try: `least` to before `first` by 1, then from `first` on by `step`,
// up to `most`. The peak must grow with the value among first, first + coarse, first + 2 coarse and
// so on. Between these it may be higher than at both neighbours: tensors of some sizes cannot be
// taken in slices. REQUIRES: coarse is a multiple of step.
struct SearchRange {
  int64_t least = 1, first = 1, step = 1, coarse = 1, most = 1;
};
// The largest value whose peak is at most `memory`: by `coarse` first, from `own` on, then the
// values between the one that was found and the next. A rise that is not quite even is forgiven:
// the two next coarse values are tried, too. Asks `peak_of` for few values.
Largest find_largest(const SearchRange& range, int64_t own, int64_t memory,
                     const std::function<int64_t(int64_t)>& peak_of);

// Searches for several ways to keep activations of one run, which share the networks on `meta`.
// Thread safety: one thread.
class LargestSearch {
 public:
  // `config`: as load_config() or parse_config() gives it, not resolved.
  // Errors (ConfigError): nothing in this run reads the key, as of the width of a network that has
  // none, or the resolution of texts.
  LargestSearch(const Config& config, Growth growth);

  // The largest value for which a step of the trainer, as `config` keeps activations and recomputes
  // blocks, takes at most `memory` bytes on `meta`. An evaluation does not count:
  // data.test_batch_size may be as small as it must. Entropy coding does not count either, because
  // what it saves depends on values.
  // REQUIRES: `config` differs from the constructor's at most in its section compression, in
  // train.checkpointing and in train.checkpointed_blocks. Errors (ConfigError): a memory_budget,
  // which is a peak itself; what resolve() finds.
  Largest find(const Config& config, int64_t memory);

 private:
  int64_t peak_of(Config config, int64_t value);

  Growth growth_;
  SearchRange range_;
  std::map<int64_t, std::unique_ptr<MetaStep>>
      steps_;  // by value; of batches one where the input is released and one where not
};

// One search. "data.batch_size and the peak", in one line:
//   find_largest(parse_config(document), Growth::batch, int64_t{16} << 30)
Largest find_largest(const Config& config, Growth growth, int64_t memory);

}  // namespace frugal::apps
