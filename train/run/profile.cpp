#include "train/run/profile.h"

#include <algorithm>
#include <map>

#include "autograd/timeline.h"

namespace frugal::train {
namespace {

using SpanKind = Timeline::Kind;

void add(ProfileRow& row, const Timeline::Span& span, double steps) {
  const double ms = span.own / steps;
  switch (span.kind) {
    case SpanKind::forward:
      row.calls += 1 / steps;
      row.forward += ms;
      break;
    case SpanKind::backward:
      row.backward += ms;
      break;
    case SpanKind::pack:
      row.pack += ms;
      break;
    case SpanKind::unpack:
      row.unpack += ms;
      break;
    case SpanKind::rebuild:
      row.rebuild += ms;
      break;
    case SpanKind::phase:
    case SpanKind::update:
    case SpanKind::load:
      row.other += ms;
  }
}

}  // namespace

std::vector<ProfileRow> Profile::rows(ProfileBy by) const {
  std::map<std::string, ProfileRow> found;
  ProfileRow loader, optimizer, rest;
  const auto name_of = [&](const char* op, int layer) {
    if (by == ProfileBy::op) return std::string(op);
    const std::string& name = timeline->layers()[static_cast<size_t>(layer)];
    return name.empty() ? std::string("(before the first layer)") : name;
  };
  for (const Timeline::Span& span : timeline->spans()) {
    ProfileRow& row = span.kind == SpanKind::load     ? loader
                      : span.kind == SpanKind::update ? optimizer
                      : span.kind == SpanKind::phase  ? rest
                                                      : found[name_of(span.name, span.layer)];
    add(row, span, static_cast<double>(steps));
  }
  rest.stored = memory.saved();
  for (const Timeline::Saved& saved : timeline->saved()) {
    ProfileRow& row = found[name_of(saved.op, saved.layer)];
    row.raw += saved.raw;
    row.stored += saved.stored;
    rest.stored -= saved.stored;
  }
  std::vector<ProfileRow> all;
  for (auto& [name, row] : found) {
    row.name = name;
    all.push_back(row);
  }
  std::stable_sort(all.begin(), all.end(), [this](const ProfileRow& a, const ProfileRow& b) {
    return timed ? a.total() > b.total() : a.stored > b.stored;
  });
  loader.name = "loader", optimizer.name = "optimizer", rest.name = "other";
  for (ProfileRow* row : {&loader, &optimizer, &rest}) all.push_back(*row);
  return all;
}

std::shared_ptr<Timeline> timeline_of(Module& model, Device device) {
  auto timeline = std::make_shared<Timeline>(device);
  for (const auto& each : model.parameters()) {
    const size_t dot = each.name.rfind('.');
    timeline->name_layer(each.parameter->value().storage()->id(),
                         dot == std::string::npos ? each.name : each.name.substr(0, dot));
  }
  return timeline;
}

}  // namespace frugal::train
