#include "apps/report/record_json.h"

#include <algorithm>
#include <string>

#include "apps/cli/report.h"

namespace frugal::apps {
namespace {

using train::MemoryCurve;
using train::SavedRecord;

// Four digits, which the text of the number then has, too.
Json rounded(double value) { return std::stod(fmt::format("{:.4g}", value)); }

Json to_json(const Shape& shape) {
  Json extents = Json::array();
  for (const int64_t extent : shape) extents.push_back(extent);
  return extents;
}

Json to_json(const MemoryCurve& curve) {
  Json json = {{"events", curve.events}, {"peak", curve.peak}};
  std::string phases;
  for (const auto& point : curve.points) phases += name_of(point.phase).front();
  json["phases"] = phases;
  for (size_t i = 0; i < kCategories; ++i) {
    Json bytes = Json::array();
    for (const auto& point : curve.points) bytes.push_back(point.live[i]);
    const bool constant = std::all_of(curve.points.begin(), curve.points.end(), [&](const auto& p) {
      return p.live[i] == curve.points.front().live[i];
    });
    json[std::string(name_of(static_cast<Category>(i)))] =
        constant && !bytes.empty() ? bytes.front() : bytes;
  }
  return json;
}

}  // namespace

Json memory_line(const train::StepRecord& record) {
  Json line = memory_json(record.memory);
  line.erase("host_peak_rss");
  if (!record.curve) return line;
  line["curve"] = to_json(*record.curve);
  line["peak_layer"] = record.curve->layer;
  line["peak_op"] = record.curve->op;
  line["largest"] = Json::array();
  for (const auto& part : record.curve->largest)
    line["largest"].push_back({{"category", name_of(part.category)},
                               {"name", part.name},
                               {"op", part.op},
                               {"shape", to_json(part.shape)},
                               {"bytes", part.bytes}});
  return line;
}

Json tensors_line(const train::StepRecord& record) {
  Json rows = Json::array();
  for (const SavedRecord& tensor : record.tensors) {
    const int64_t elements = tensor.shape.numel();
    const bool has_bits =
        tensor.how == SavedRecord::How::packed && tensor.stored_bytes && elements > 0;
    rows.push_back({tensor.layer, tensor.op, tensor.slot,
                    tensor.seq ? Json(*tensor.seq) : Json(nullptr), to_json(tensor.shape),
                    name_of(tensor.how), tensor.raw_bytes,
                    tensor.stored_bytes ? Json(*tensor.stored_bytes) : Json(nullptr),
                    has_bits ? rounded(8 * static_cast<double>(*tensor.stored_bytes) /
                                       static_cast<double>(elements))
                             : Json(nullptr),
                    tensor.error ? rounded(*tensor.error) : Json(nullptr)});
  }
  return {{"columns",
           {"layer", "op", "slot", "seq", "shape", "how", "raw_bytes", "stored_bytes", "bits",
            "error"}},
          {"rows", rows}};
}

Json tensor_times(const train::StepRecord& record) {
  Json pack = Json::array(), unpack = Json::array();
  for (const SavedRecord& tensor : record.tensors) {
    pack.push_back(rounded(1000 * tensor.pack_seconds));
    unpack.push_back(rounded(1000 * tensor.unpack_seconds));
  }
  return {{"pack_ms", pack}, {"unpack_ms", unpack}};
}

}  // namespace frugal::apps
