// ONNX files.
#pragma once
#include <string>

#include "export/onnx_graph.h"

namespace frugal::exports {

// Whether this build has the ONNX library.
bool can_write_onnx();

// The bytes of weights that a file of ONNX holds itself. More go into a second file beside it,
// PATH.data (ONNX's external data), because a protobuf message ends at 2 GiB.
constexpr int64_t kMostInside = int64_t{1} << 30;

// Writes both files atomically, the one with the weights first.
// Errors: a build without the ONNX library; a weight on meta; those of AtomicFile.
void write_onnx(const std::string& path, const OnnxGraph& graph, int64_t most_inside = kMostInside);

}  // namespace frugal::exports
