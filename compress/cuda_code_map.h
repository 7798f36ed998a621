// A CodeMap and other things that the host knows, on the device. For .cu files.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "compress/code_map.h"
#include "core/cuda_graph.h"
#include "core/cuda_kernel.h"
#include "core/cuda_staging.h"

namespace frugal::compress::entropy {

using namespace frugal::cuda;

inline constexpr int kThreads = 256;

// Blocks for `wanted` pieces of work; fewer, that stride, where that keeps the device busy.
inline dim3 blocks_across(int64_t wanted, int per_processor) {
  return {static_cast<unsigned>(std::min(wanted, int64_t{multiprocessors()} * per_processor))};
}

// `count` values on `device`, as workspace; the host does not wait.
template <class T>
Tensor upload(const T* from, int64_t count, Device device) {
  static_assert(std::is_trivially_copyable_v<T>);
  const CategoryScope scope(Category::workspace);
  const Tensor here = Tensor::empty({count * static_cast<int64_t>(sizeof(T))}, DType::u8);
  std::memcpy(here.raw(), from, static_cast<size_t>(here.nbytes()));
  return frugal::cuda::staged(here, device);
}
template <class T>
Tensor upload(const std::vector<T>& from, Device device) {
  return upload(from.data(), static_cast<int64_t>(from.size()), device);
}
template <class T>
T* as(const Tensor& tensor) {
  return static_cast<T*>(tensor.raw());
}

// Errors: work is being recorded, whose replays would read what the host saw this time.
inline void check_not_recording() {
  FRUGAL_CHECK(!recording(),
               "[entropy] expected work that is run, got work that is being captured: the host "
               "reads counts and lengths, which differ from step to step");
}

struct MapView {
  const Place* places;
  const Block* blocks;
  int64_t place_count, block_count, metadata;
};
class DeviceMap {
 public:
  DeviceMap(const CodeMap& map, Device device)
      : places_(upload(map.places(), device)),
        blocks_(upload(map.blocks(), device)),
        view_{as<Place>(places_), as<Block>(blocks_), static_cast<int64_t>(map.places().size()),
              map.block_count(), map.metadata_bytes()} {}
  const MapView& view() const { return view_; }

 private:
  Tensor places_, blocks_;
  MapView view_;
};

}  // namespace frugal::compress::entropy
