// A CodeMap on the device. For .cu files.
#pragma once
#include "compress/quantize/code_map.h"
#include "compress/quantize/cuda_upload.h"

namespace frugal::compress::entropy {

using namespace compress::cuda;

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
