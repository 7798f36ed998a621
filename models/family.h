// Family: the kind of data that a network reads.
#pragma once
#include <cstdint>

namespace frugal::models {

// Images, which a network classifies as a whole or pixel by pixel (segmentation), or in which it
// finds objects (detection); sequences, as a whole (encoder) or up to each token (decoder); graphs.
enum class Family : uint8_t { images, segmentation, detection, encoder, decoder, graph };

}  // namespace frugal::models
