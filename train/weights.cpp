#include "train/weights.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/dtype_switch.h"
#include "core/quoted.h"
#include "models/state.h"

namespace frugal::train {

void check_finite(const std::string& path, const std::string& name, const Tensor& tensor) {
  if (!is_floating(tensor.dtype())) return;
  with_dtype(tensor.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* values = tensor.data<T>();
    constexpr int64_t kChunk = 4096;  // without a way out of the loop, it is vectorized
    for (int64_t begin = 0; begin < tensor.numel(); begin += kChunk) {
      const int64_t end = std::min(begin + kChunk, tensor.numel());
      bool finite = true;
      for (int64_t i = begin; i < end; ++i)
        finite = finite & std::isfinite(static_cast<float>(values[i]));
      if (finite) continue;
      const T* bad = std::find_if(values + begin, values + end, [](T value) {
        return !std::isfinite(static_cast<float>(value));
      });
      double value = 0;
      if constexpr (std::is_same_v<T, double>)
        value = *bad;
      else
        value = static_cast<double>(static_cast<float>(*bad));
      FRUGAL_CHECK(false,
                   "[weights] expected finite values in f32's range in {}, got {} at element {} of "
                   "{}",
                   path, value, bad - values, in_quotes(name));
    }
  });
}

void load_weights(Module& module, const data::SafetensorsFile& file) {
  models::NamedTensors described;
  for (const std::string& name : file.names()) {
    const data::SafetensorsInfo& info = file.info(name);
    described.emplace_back(name, Tensor::empty(info.shape, info.dtype, kMeta));
  }
  models::check_state_dict(module, described, file.path());
  const models::NamedTensors state = file.read_all();
  for (const auto& [name, tensor] : state) check_finite(file.path(), name, tensor);
  models::load_state_dict(module, state, file.path());
}

}  // namespace frugal::train
