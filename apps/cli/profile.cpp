#include "apps/cli/profile.h"

#include <algorithm>
#include <array>

#include "apps/json.h"
#include "autograd/timeline.h"
#include "core/memory/memory_trace.h"

namespace frugal::apps {
namespace {

using SpanKind = Timeline::Kind;

constexpr std::array<const char*, Timeline::kKinds> kKindNames = {
    "phase", "forward", "backward", "pack", "unpack", "rebuild", "optimizer", "loader"};

const char* category_of(SpanKind kind) { return kKindNames.at(static_cast<size_t>(kind)); }

// Ops of the forward and of the backward pass are told apart by the phase around them.
std::string title_of(const Timeline::Span& span) {
  switch (span.kind) {
    case SpanKind::pack:
    case SpanKind::unpack:
    case SpanKind::rebuild:
      return fmt::format("{} {}", category_of(span.kind), span.name);
    case SpanKind::phase:
    case SpanKind::forward:
    case SpanKind::backward:
    case SpanKind::update:
    case SpanKind::load:
      break;
  }
  return span.name;
}

}  // namespace

std::string trace_json(const train::Profile& profile) {
  const Timeline& timeline = *profile.timeline;
  const auto micros = [](double milliseconds) { return 1000 * milliseconds; };
  std::string text = R"({"displayTimeUnit": "ms", "traceEvents": [
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "frugal"}},
{"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "training"}})";
  const auto append = [&](const Json& event) { text += ",\n" + event.dump(); };
  // Viewers want a span before the spans that it holds.
  std::vector<Timeline::Span> spans = timeline.spans();
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  for (const Timeline::Span& span : spans) {
    Json event = {{"name", title_of(span)},
                  {"cat", category_of(span.kind)},
                  {"ph", "X"},
                  {"ts", micros(span.begin)},
                  {"dur", micros(span.end - span.begin)},
                  {"pid", 1},
                  {"tid", 1}};
    const std::string& layer = timeline.layers()[static_cast<size_t>(span.layer)];
    if (!layer.empty() && span.kind != SpanKind::phase) event["args"] = {{"layer", layer}};
    append(event);
  }
  static const std::vector<MemoryTrace::Event> kNone;
  for (const MemoryTrace::Event& event : profile.live != nullptr ? profile.live->events() : kNone) {
    Json bytes = Json::object();
    for (size_t i = 0; i < event.live.size(); ++i)
      bytes[std::string(frugal::name_of(static_cast<Category>(i)))] = event.live[i];
    append({{"name", "memory"},
            {"ph", "C"},
            {"ts", micros(event.milliseconds + profile.live_begin)},
            {"pid", 1},
            {"args", bytes}});
  }
  return text + "\n]}\n";
}

}  // namespace frugal::apps
