#include "apps/cli/profile.h"

#include <algorithm>
#include <array>
#include <map>

#include "apps/json.h"

namespace frugal::apps {
namespace {

using Kind = Timeline::Kind;

constexpr std::array<const char*, Timeline::kKinds> kKindNames = {
    "phase", "forward", "backward", "pack", "unpack", "rebuild", "optimizer", "loader"};

const char* category_of(Kind kind) { return kKindNames.at(static_cast<size_t>(kind)); }

// Ops of the forward and of the backward pass are told apart by the phase around them.
std::string title_of(const Timeline::Span& span) {
  switch (span.kind) {
    case Kind::pack:
    case Kind::unpack:
    case Kind::rebuild:
      return fmt::format("{} {}", category_of(span.kind), span.name);
    case Kind::phase:
    case Kind::forward:
    case Kind::backward:
    case Kind::update:
    case Kind::load:
      break;
  }
  return span.name;
}

void add(ProfileRow& row, const Timeline::Span& span, double steps) {
  const double ms = span.own / steps;
  switch (span.kind) {
    case Kind::forward:
      row.calls += 1 / steps;
      row.forward += ms;
      break;
    case Kind::backward:
      row.backward += ms;
      break;
    case Kind::pack:
      row.pack += ms;
      break;
    case Kind::unpack:
      row.unpack += ms;
      break;
    case Kind::rebuild:
      row.rebuild += ms;
      break;
    case Kind::phase:
    case Kind::update:
    case Kind::load:
      row.other += ms;
  }
}

}  // namespace

std::vector<ProfileRow> profile_rows(const Timeline& timeline, int64_t steps,
                                     const StepMemory& memory, ProfileBy by) {
  std::map<std::string, ProfileRow> found;
  ProfileRow loader, optimizer, rest;
  const auto name_of = [&](const char* op, int layer) {
    if (by == ProfileBy::op) return std::string(op);
    const std::string& name = timeline.layers()[static_cast<size_t>(layer)];
    return name.empty() ? std::string("(before the first layer)") : name;
  };
  for (const Timeline::Span& span : timeline.spans()) {
    ProfileRow& row = span.kind == Kind::load     ? loader
                      : span.kind == Kind::update ? optimizer
                      : span.kind == Kind::phase  ? rest
                                                  : found[name_of(span.name, span.layer)];
    add(row, span, static_cast<double>(steps));
  }
  rest.stored = memory.saved();
  for (const Timeline::Saved& saved : timeline.saved()) {
    ProfileRow& row = found[name_of(saved.op, saved.layer)];
    row.raw += saved.raw;
    row.stored += saved.stored;
    rest.stored -= saved.stored;
  }
  std::vector<ProfileRow> rows;
  for (auto& [name, row] : found) {
    row.name = name;
    rows.push_back(row);
  }
  const bool timed =
      std::any_of(rows.begin(), rows.end(), [](const ProfileRow& row) { return row.total() > 0; });
  std::stable_sort(rows.begin(), rows.end(), [&](const ProfileRow& a, const ProfileRow& b) {
    return timed ? a.total() > b.total() : a.stored > b.stored;
  });
  loader.name = "loader", optimizer.name = "optimizer", rest.name = "other";
  for (ProfileRow* row : {&loader, &optimizer, &rest}) rows.push_back(*row);
  return rows;
}

std::string trace_json(const Timeline& timeline, const std::vector<MemoryTrace::Event>& live,
                       double shift) {
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
    if (!layer.empty() && span.kind != Kind::phase) event["args"] = {{"layer", layer}};
    append(event);
  }
  for (const MemoryTrace::Event& event : live) {
    Json bytes = Json::object();
    for (size_t i = 0; i < event.live.size(); ++i)
      bytes[std::string(frugal::name_of(static_cast<Category>(i)))] = event.live[i];
    append({{"name", "memory"},
            {"ph", "C"},
            {"ts", micros(event.milliseconds + shift)},
            {"pid", 1},
            {"args", bytes}});
  }
  return text + "\n]}\n";
}

}  // namespace frugal::apps
