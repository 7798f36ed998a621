#include "apps/report/page.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/cli/progress.h"
#include "apps/config/keys/config_table.h"
#include "apps/report/chart.h"
#include "apps/report/html.h"
#include "apps/report/run_facts.h"
#include "apps/whole_number.h"
#include "core/memory.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/json_strict.h"
#include "train/step_record.h"

namespace frugal::apps {
namespace {

constexpr size_t kRows = 400;  // a table of tensors shows at most so many

std::string or_dash(const std::optional<double>& value, const char* format, double factor = 1) {
  return value ? fmt::format(fmt::runtime(format), factor * *value) : "–";
}
std::string or_dash(const std::optional<int64_t>& bytes) {
  return bytes ? readable_bytes(*bytes) : "–";
}

// Numbers of files may add up to more than 2^53 bytes; this says 2^53 then.
std::string bytes_text(double bytes) {
  return readable_bytes(std::llround(std::clamp(bytes, -0x1p53, 0x1p53)));
}

std::string times(double ratio) {
  return fmt::format("{}x",
                     ratio >= 10 ? fmt::format("{:.1f}", ratio) : fmt::format("{:.2f}", ratio));
}

// A layer of the tables and lists, or what there is instead of one.
std::string layer_text(const std::string& layer) { return layer.empty() ? "(input)" : layer; }

std::string section(const std::string& id, const std::string& title, const std::string& text,
                    const std::string& body) {
  if (body.empty()) return "";
  return fmt::format("<section id=\"{}\"><h2>{}</h2><p>{}</p>{}</section>\n", id, title, text,
                     body);
}

std::string page(const std::string& title, const std::string& body) {
  return html_page(title, body, "the files of the run", true);
}

// Links to the sections that the page has.
std::string navigation(const std::string& body) {
  std::string links;
  for (size_t at = 0; (at = body.find("<section id=\"", at)) != std::string::npos; ++at) {
    const size_t id = at + 13, id_end = body.find('"', id);
    const size_t title = body.find("<h2>", id_end) + 4, title_end = body.find("</h2>", title);
    links += fmt::format("<a href=\"#{}\">{}</a>", body.substr(id, id_end - id),
                         body.substr(title, title_end - title));
  }
  return "<nav>" + links + "</nav>\n";
}

std::string tile(const std::string& what, const std::string& value, const std::string& more = "") {
  return fmt::format(
      "<div class=\"tile\"><span class=\"what\">{}</span><b>{}</b><span>{}</span></div>", what,
      value, more);
}

// ---- headline

const char* text_of(RunStatus status) {
  switch (status) {
    case RunStatus::finished:
      return "finished";
    case RunStatus::running:
      return "running";
    case RunStatus::cut:
      break;
  }
  return "interrupted";
}
const char* style_of(RunStatus status) {
  switch (status) {
    case RunStatus::finished:
      return "";
    case RunStatus::running:
      return " running";
    case RunStatus::cut:
      break;
  }
  return " cut";
}

std::string tiles(const RunFacts& facts) {
  std::string text = "<div class=\"tiles\">";
  if (facts.has_accuracy)
    text += tile("Test accuracy", or_dash(facts.accuracy, "{:.2f} %", 100),
                 facts.best_accuracy ? fmt::format("best {:.2f} %", 100 * *facts.best_accuracy)
                                     : "not evaluated yet");
  if (facts.metric_value)
    text += tile("Test " + escaped(facts.metric), fmt::format("{:.4f}", *facts.metric_value));
  text += tile("Test loss", or_dash(facts.test_loss, "{:.4f}"),
               facts.train_loss ? fmt::format("train {:.4f}", *facts.train_loss) : "");
  const RecordedStep* const last = facts.recorded.empty() ? nullptr : &facts.recorded.back();
  const double ratio =
      last != nullptr && last->stored_bytes > 0 ? last->raw_bytes / last->stored_bytes : 0;
  text += tile("Activation memory", or_dash(facts.activation),
               ratio > 0 ? fmt::format("{} less than kept whole", times(ratio)) : "");
  text += tile("Peak memory", or_dash(facts.peak),
               facts.rss ? fmt::format("whole process {}", readable_bytes(*facts.rss)) : "");
  if (last != nullptr && last->packed_bits)
    text += tile("Bits of a packed value", fmt::format("{:.2f}", *last->packed_bits),
                 "ranges and scales included");
  text += tile(
      "Step time", or_dash(facts.step_ms, "{:.1f} ms"),
      facts.step_ms
          ? fmt::format("median; about {} for {} {}",
                        readable_seconds(*facts.step_ms / 1000 * static_cast<double>(facts.step)),
                        counted(facts.step), noun_for(facts.step, "step"))
          : "known when the run has ended");
  if (facts.rate)
    text += tile("Speed", short_number(*facts.rate), escaped(facts.unit) + " per second");
  if (facts.ranks)
    text += tile("Ranks", counted(*facts.ranks),
                 fmt::format("{} of a step adds up gradients, {} waits for that; the slowest is {} "
                             "above the mean",
                             or_dash(facts.communication, "{:.1f} %", 100),
                             or_dash(facts.waiting, "{:.1f} %", 100),
                             or_dash(facts.imbalance, "{:.1f} %", 100)));
  return text + "</div>\n";
}

// ---- curves

std::string metric_curve(const ReportRun& run, const RunFacts& facts) {
  if (facts.metric.empty() || facts.metric == "accuracy") return "";
  return line_chart({{"test", points_of(run, "epoch", "/test_" + facts.metric), 1}},
                    {.title = "Test " + facts.metric, .y = facts.metric});
}

std::string curves(const ReportRun& run, const RunFacts& facts) {
  const auto trained = [&](const std::string& key) {
    Points points = points_of(run, "step", "/" + key);
    return points.empty() ? points_of(run, "epoch", "/train_" + key) : points;
  };
  const auto three = [&](const std::string& key) {
    return std::vector<Line>{{"train", trained(key), 0},
                             {"validation", points_of(run, "epoch", "/validation/" + key), 2, true},
                             {"test", points_of(run, "epoch", "/test_" + key), 1}};
  };
  std::string body = line_chart(three("loss"), {.title = "Loss", .y = "loss"});
  if (facts.has_accuracy)
    body += line_chart(three("accuracy"),
                       {.title = "Accuracy", .y = "accuracy", .unit = Unit::percent});
  body += metric_curve(run, facts);
  body += line_chart({{"learning rate", points_of(run, "step", "/lr"), 3}},
                     {.title = "Learning rate", .y = "rate of a step"});
  body += line_chart({{"norm", points_of(run, "step", "/grad_norm"), 4}},
                     {.title = "Norm of the gradient", .y = "2-norm, before clipping"});
  return section("curves", "Loss and accuracy",
                 "Train values are means over the steps of a log interval.",
                 body.empty() ? "" : "<div class=\"grid\">" + body + "</div>");
}

// ---- memory over one step

// From below to above in the chart: what is always there comes first.
constexpr Category kOrder[] = {Category::parameter, Category::optimizer,  Category::input,
                               Category::packed,    Category::activation, Category::gradient,
                               Category::workspace};

const char* phase_text(char phase) {
  return phase == 'f' ? "forward" : phase == 'b' ? "backward" : "update";
}

std::string largest_list(const Json& memory) {
  const std::string op = memory.at("peak_op").get<std::string>();
  int64_t most = 1;
  for (const Json& part : memory.at("largest"))
    most = std::max(most, whole_number(part.at("bytes")));
  std::string text = "<div class=\"card\"><h3>The largest at the peak</h3><ol class=\"top\">";
  for (const Json& part : memory.at("largest")) {
    const std::string category = part.at("category").get<std::string>();
    const std::string name = part.at("name").get<std::string>();
    const auto bytes = whole_number(part.at("bytes"));
    std::string what = part.at("op").get<std::string>(), shape;
    for (const Json& extent : part.at("shape"))
      shape += (shape.empty() ? "" : " x ") + std::to_string(whole_number(extent));
    const bool saved = !what.empty();
    what = saved                  ? (category == "packed" ? "packed for " : "kept for ") + what
           : !name.empty()        ? category
           : category == "packed" ? "several, such as rebuilt ones that wait"
           : category == "workspace"
               ? (op.empty() ? "temporary tensors" : "temporary tensors of " + op)
           : category == "gradient"   ? "several gradients"
           : category == "input"      ? "batches"
           : category == "activation" ? "several activations that no op keeps"
                                      : "several tensors";
    text += fmt::format(
        "<li><div><span>{} <small>{}{}</small></span><span>{}</span></div><i class=\"{}\" "
        "style=\"width:{:.1f}%\"></i></li>",
        escaped(name.empty() && !saved ? category : layer_text(name)), escaped(what),
        shape.empty() ? "" : ", " + escaped(shape), readable_bytes(bytes), escaped(category),
        100.0 * static_cast<double>(bytes) / static_cast<double>(most));
  }
  return text + "</ol></div>";
}

// The phase of each moment of a recorded step. A chart takes a few hundred bytes for each moment.
std::string phases_of(const Json& curve) {
  constexpr size_t kMost = 32 * train::MemoryCurve::kPoints;
  std::string phases = curve.at("phases").get<std::string>();
  FRUGAL_CHECK(phases.size() <= kMost, "expected at most {} moments of a step, got {}", kMost,
               phases.size());
  return phases;
}

std::string memory_chart(const Json& memory) {
  const Json& curve = memory.at("curve");
  const std::string phases = phases_of(curve);
  std::vector<Area> areas;
  for (const Category category : kOrder) {
    Area area;
    area.name = std::string(name_of(category));
    area.style = area.name;
    const Json& bytes = curve.at(area.name);
    for (size_t i = 0; i < phases.size(); ++i)
      area.values.push_back((bytes.is_array() ? bytes.at(i) : bytes).get<double>());
    if (std::any_of(area.values.begin(), area.values.end(), [](double b) { return b > 0; }))
      areas.push_back(std::move(area));
  }
  StackOptions options;
  options.title = fmt::format("Memory over step {}", whole_number(memory.at("step")));
  options.y = "bytes of tensors";
  options.x = fmt::format("allocations and releases in their order: {}",
                          counted(whole_number(curve.at("events"))));
  for (size_t begin = 0, end = 0; begin < phases.size(); begin = end) {
    end = phases.find_first_not_of(phases[begin], begin);
    if (end == std::string::npos) end = phases.size();
    options.stretches.push_back({phase_text(phases[begin]), begin, end});
  }
  const int64_t marked = whole_number(curve.at("peak"));
  FRUGAL_CHECK(marked >= 0 && marked < static_cast<int64_t>(phases.size()),
               "expected the peak at one of {} moments of a step, got {}", phases.size(), marked);
  options.marked = static_cast<size_t>(marked);
  double peak = 0;
  for (const Area& area : areas) peak += area.values[options.marked];
  options.mark = "peak " + bytes_text(peak);
  const std::string layer = memory.at("peak_layer").get<std::string>();
  const std::string op = memory.at("peak_op").get<std::string>();
  if (!op.empty())
    options.note = fmt::format("At the peak, {} of {} ran ({}).", op, layer_text(layer),
                               phase_text(phases[options.marked]));
  return stacked_chart(areas, options);
}

std::string recorded_table(const std::vector<RecordedStep>& recorded) {
  if (recorded.size() < 2 || !recorded.front().memory.is_object()) return "";
  std::string text =
      "<div class=\"card\" style=\"margin-top:14px\"><h3>Recorded steps</h3><table><thead><tr>"
      "<th>step</th><th>activation memory</th><th>packed</th><th>peak</th><th>bits of a packed "
      "value</th></tr></thead><tbody>";
  for (const RecordedStep& step : recorded)
    if (step.memory.is_object())
      text += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                          counted(step.step),
                          readable_bytes(whole_number(step.memory.at("activation_bytes"))),
                          readable_bytes(whole_number(step.memory.at("packed_bytes"))),
                          readable_bytes(whole_number(step.memory.at("peak_bytes"))),
                          or_dash(step.packed_bits, "{:.2f}"));
  return text + "</tbody></table></div>";
}

std::string memory_section(const RunFacts& facts) {
  const std::string title = "Memory over one step";
  if (facts.recorded.empty())
    return section("memory", title,
                   "No step of this run is recorded: step 2 is the first that is, and earlier "
                   "versions recorded none.",
                   " ");
  const Json& memory = facts.recorded.back().memory;
  if (!memory.is_object() || !memory.contains("curve"))
    return section("memory", title,
                   "Another thread moves tensors to a file in this run (compression.offload), so "
                   "the order of its allocations is by chance and is not recorded.",
                   recorded_table(facts.recorded) + " ");
  return section(
      "memory", title,
      "Bytes of tensors by what they are for. <em>Activation</em> and <em>packed</em> are "
      "kept for the backward pass, as they are and compressed. <em>Workspace</em> is "
      "temporary.",
      "<div class=\"grid wide\">" + memory_chart(memory) + largest_list(memory) + "</div>" +
          recorded_table(facts.recorded));
}

// ---- tensors

std::string cell(const std::string& text, const std::optional<double>& value) {
  return fmt::format("<td data-value=\"{}\">{}</td>",
                     value ? fmt::format("{:.6g}", *value) : std::string(), text);
}

std::string tensor_table(const std::vector<TensorRow>& all) {
  std::vector<const TensorRow*> rows;
  for (const TensorRow& row : all) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const TensorRow* a, const TensorRow* b) { return a->raw > b->raw; });
  const size_t left_out = rows.size() > kRows ? rows.size() - kRows : 0;
  rows.resize(rows.size() - left_out);
  const int64_t most = std::max<int64_t>(1, rows.empty() ? 1 : rows.front()->raw);
  std::string text =
      "<div class=\"scroll\"><table><thead><tr><th data-sort>layer</th><th class=\"left\" "
      "data-sort>op</th><th class=\"left\">shape</th><th class=\"left\" data-sort>how</th>"
      "<th data-sort aria-sort=\"descending\">raw</th><th data-sort>stored</th>"
      "<th class=\"left\">stored of raw</th><th data-sort>bits</th><th data-sort>error</th>"
      "<th data-sort>pack, ms</th><th data-sort>unpack, ms</th></tr></thead><tbody>";
  for (const TensorRow* row : rows) {
    const std::string how = row->how == "in memory" ? "input" : row->how;
    const auto share = [&](int64_t bytes) {
      return 100.0 * static_cast<double>(bytes) / static_cast<double>(most);
    };
    text += fmt::format(
        "<tr><td>{}</td><td class=\"left\">{}</td><td class=\"left\">{}</td><td class=\"left\">"
        "<span class=\"how {}\">{}</span></td>",
        escaped(layer_text(row->layer)), escaped(row->op), escaped(row->shape), escaped(how),
        escaped(row->how));
    text += cell(readable_bytes(row->raw), static_cast<double>(row->raw));
    text += cell(or_dash(row->stored),
                 row->stored ? std::optional(static_cast<double>(*row->stored)) : std::nullopt);
    text += fmt::format("<td class=\"left\"><span class=\"bar {}\"><i style=\"width:{:.1f}%\"></i>",
                        row->how == "kept" ? "activation" : "packed", share(row->raw));
    if (row->stored.value_or(0) > 0)
      text += fmt::format("<i style=\"width:{:.1f}%\"></i>", share(*row->stored));
    text += "</span></td>";
    const bool shows = row->how != "rebuilt" && row->how != "in memory";
    text += cell(shows ? or_dash(row->bits, "{:.3g}") : "–", shows ? row->bits : std::nullopt);
    text += cell(row->error ? fmt::format("{:.2g} %", 100 * *row->error) : "–", row->error);
    text += cell(or_dash(row->pack_ms, "{:.3g}"), row->pack_ms);
    text += cell(or_dash(row->unpack_ms, "{:.3g}"), row->unpack_ms) + "</tr>";
  }
  text += "</tbody></table></div>";
  if (left_out > 0)
    text += fmt::format("<p class=\"note\">The {} smallest tensors are left out.</p>",
                        counted(static_cast<int64_t>(left_out)));
  return text;
}

// The bytes of `parts` are doubles, because a file may name more than a whole number holds.
std::string split_bar(const std::string& title,
                      const std::vector<std::pair<std::string, double>>& parts, double all,
                      const std::function<std::string(const std::string&)>& style) {
  std::string bar, words;
  double sum = 0;
  for (const auto& [name, bytes] : parts) {
    if (bytes <= 0) continue;
    sum += bytes;
    bar += fmt::format("<i class=\"{}\" style=\"width:{:.2f}%\"></i>", style(name),
                       100 * bytes / std::max(all, 1.0));
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", escaped(name), bytes_text(bytes));
  }
  return fmt::format("<div>{} <strong>{}</strong>{}<div class=\"split\">{}</div></div>", title,
                     bytes_text(sum), words.empty() ? "" : ": " + words, bar);
}

std::string tensors_section(const RunFacts& facts) {
  const auto last = std::find_if(facts.recorded.rbegin(), facts.recorded.rend(),
                                 [](const RecordedStep& step) { return !step.tensors.empty(); });
  if (last == facts.recorded.rend()) return "";
  std::map<std::string, double> raw, stored;
  for (const TensorRow& row : last->tensors) {
    raw[row.how] += static_cast<double>(row.raw);
    stored[row.how] += static_cast<double>(row.stored.value_or(0));
  }
  const auto parts = [](const std::map<std::string, double>& sums, const char* suffix) {
    std::vector<std::pair<std::string, double>> all;
    for (const char* how : {"packed", "moved", "rebuilt", "kept"})
      if (const auto found = sums.find(how); found != sums.end())
        all.emplace_back(std::string(how) + suffix, found->second);
    return all;
  };
  const auto style = [](const std::string& how) -> std::string {
    return how.starts_with("packed")    ? "packed"
           : how.starts_with("rebuilt") ? "c2"
           : how.starts_with("moved")   ? "c3"
                                        : "activation";
  };
  const std::string bars = "<div class=\"card splits\" style=\"margin-bottom:14px\">" +
                           split_bar("Raw", parts(raw, ""), last->raw_bytes, style) +
                           split_bar("Stored", parts(stored, ""), last->raw_bytes, style) +
                           "</div>";
  return section(
      "tensors", "Saved tensors",
      fmt::format("What step {} kept for its backward pass. A <em>rebuilt</em> tensor is not kept: "
                  "backward makes it of others. <em>Error</em> is the relative error of what is "
                  "unpacked, |unpacked - value| / |value|; where the derivative is 0, values are "
                  "packed coarsely on purpose. An op without parameters stands under the layer "
                  "before it. A click on a heading sorts.",
                  counted(last->step)),
      bars + tensor_table(last->tensors));
}

// ---- bits and sensitivities

int kind_of(double bits) {
  constexpr double kBounds[] = {1, 2, 3, 4, 6, 8};
  for (int i = 0; i < 6; ++i)
    if (bits <= kBounds[i]) return i;
  return bits <= 16 ? 6 : 7;
}

struct Widths {
  std::vector<const Json*> lines;
  std::vector<std::string> names;  // the tensors' names
};

Widths widths_of(const ReportRun& run, const RunFacts& facts) {
  Widths widths;
  size_t tensors = 0;
  for (const Json& line : run.lines)
    if (line.is_object() && line.value("type", Json()) == "widths" && line.contains("bits") &&
        line["bits"].is_array()) {
      widths.lines.push_back(&line);
      tensors = line["bits"].size();
    }
  std::erase_if(widths.lines, [&](const Json* line) { return (*line)["bits"].size() != tensors; });
  std::map<uint64_t, std::string> known;
  for (const RecordedStep& step : facts.recorded)
    for (const TensorRow& row : step.tensors)
      if (row.seq) known[*row.seq] = layer_text(row.layer) + " " + row.op;
  const Json seqs = tensors > 0 ? widths.lines.back()->value("seqs", Json()) : Json();
  for (size_t i = 0; i < tensors; ++i) {
    const uint64_t seq =
        seqs.is_array() && i < seqs.size() ? static_cast<uint64_t>(whole_number(seqs[i])) : i;
    const auto found = known.find(seq);
    widths.names.push_back(found != known.end() ? found->second : fmt::format("tensor {}", seq));
  }
  return widths;
}

std::string bits_cells(const Widths& widths) {
  constexpr size_t kMostRows = 60, kMostColumns = 40;
  Cells cells;
  cells.legend = {{"1 bit", "b0"},         {"2 bits", "b1"},    {"3 bits", "b2"},
                  {"4 bits", "b3"},        {"5, 6 bits", "b4"}, {"7, 8 bits", "b5"},
                  {"up to 16 bits", "b6"}, {"raw", "b7"}};
  const size_t every = (widths.lines.size() + kMostColumns - 1) / kMostColumns;
  for (size_t i = widths.lines.size(); i > 0; i -= std::min(i, every))
    cells.labels.insert(cells.labels.begin(),
                        counted(whole_number(widths.lines[i - 1]->at("step"))));
  for (size_t row = 0; row < std::min(widths.names.size(), kMostRows); ++row) {
    cells.names.push_back(widths.names[row]);
    std::vector<int> kinds;
    for (size_t i = widths.lines.size(); i > 0; i -= std::min(i, every)) {
      const Json& bits = (*widths.lines[i - 1])["bits"][row];
      kinds.insert(kinds.begin(), bits.is_number() ? kind_of(bits.get<double>()) : -1);
    }
    cells.kinds.push_back(std::move(kinds));
  }
  const std::string note =
      widths.names.size() > kMostRows
          ? fmt::format("The first {} of {} tensors.", kMostRows, widths.names.size())
          : "";
  return cell_chart(cells, "Bits of each packed tensor", note, "step of the measurement");
}

std::string sensitivity_chart(const Widths& widths) {
  constexpr size_t kShown = 6;
  std::vector<std::pair<double, size_t>> last;
  const Json measured = widths.lines.back()->value("sensitivities", Json());
  for (size_t i = 0; i < widths.names.size(); ++i)
    if (measured.is_array() && i < measured.size() && measured[i].is_number())
      last.emplace_back(-measured[i].get<double>(), i);
  std::sort(last.begin(), last.end());
  if (last.size() > kShown) last.resize(kShown);
  std::vector<Line> lines;
  for (const auto& [negative, tensor] : last) {
    Line line{widths.names[tensor], {}, static_cast<int>(lines.size())};
    for (const Json* each : widths.lines) {
      const auto all = each->find("sensitivities");
      if (all != each->end() && all->is_array() && tensor < all->size() &&
          (*all)[tensor].is_number())
        line.points.emplace_back(each->at("step").get<double>(), (*all)[tensor].get<double>());
    }
    lines.push_back(std::move(line));
  }
  return line_chart(std::move(lines),
                    {.title = "The most sensitive tensors",
                     .note = "At b bits, rounding of the tensor adds this number divided by (2^b - "
                             "1)^2 to the variance of the gradient.",
                     .y = "sensitivity",
                     .log_y = true});
}

std::string bits_section(const ReportRun& run, const RunFacts& facts) {
  const Widths widths = widths_of(run, facts);
  if (widths.lines.empty()) return "";
  const std::string body = line_chart({{"average", points_of(run, "widths", "/average_bits"), 0}},
                                      {.title = "Average bits", .y = "bits of a packed value"}) +
                           sensitivity_chart(widths) + bits_cells(widths);
  return section("bits", "Bits and sensitivities",
                 "The policy measures how sensitive the gradient is to each tensor, and gives "
                 "sensitive tensors more bits.",
                 "<div class=\"grid\">" + body + "</div>");
}

// ---- variance

std::string variance_section(const ReportRun& run, const RunFacts& facts) {
  if (!facts.convergence) return "";
  const auto of = [&](const char* key) {
    return points_of(run, "convergence", std::string("/") + key);
  };
  const std::string body =
      line_chart({{"of minibatches", of("minibatch_variance"), 0},
                  {"added by compression", of("added_variance"), 1}},
                 {.title = "Variance of the gradient", .y = "variance", .log_y = true}) +
      line_chart({{"variance and squared bias", of("added_share"), 1},
                  {"squared bias", of("bias_share"), 2}},
                 {.title = "What compression adds",
                  .y = "share of the variance of minibatches",
                  .unit = Unit::percent});
  return section("variance", "Noise of the gradient",
                 "Minibatches make the gradient noisy anyway. Compression adds a little. A squared "
                 "bias around 0, below it at times, says that the gradient is right on average.",
                 "<div class=\"grid\">" + body + "</div>");
}

// ---- plan

std::string plan_section(const RunFacts& facts) {
  if (!facts.plan) return "";
  const Json& plan = *facts.plan;
  std::string rows;
  const auto row = [&](const char* what, const char* key, const std::optional<int64_t>& measured) {
    if (!plan.contains(key) || !plan[key].is_number()) return;
    const auto planned = whole_number(plan[key]);
    const std::string difference =
        measured && planned > 0
            ? fmt::format("{:+.2f} %", 100.0 * static_cast<double>(*measured - planned) /
                                           static_cast<double>(planned))
            : "–";
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", what,
                        readable_bytes(planned), or_dash(measured), difference);
  };
  row("activation memory", "activation_bytes", facts.activation);
  row("peak memory", "peak_bytes", facts.peak);
  const bool activations = plan.value("of", "") == "activations";
  if (plan.contains("limit_bytes"))
    rows += fmt::format("<tr><td>limit, of the {}</td><td>{}</td><td></td><td></td></tr>",
                        activations ? "activations" : "peak",
                        readable_bytes(whole_number(plan["limit_bytes"])));
  return section("plan", "Plan and measurement",
                 fmt::format("The plan of step {}. Tensors: {}, raw ones: {}, bits on average: {}.",
                             counted(whole_number(plan.at("step"))),
                             counted(whole_number(plan.value("tensors", Json(0)))),
                             counted(whole_number(plan.value("raw_tensors", Json(0)))),
                             short_number(plan.value("average_bits", 0.0))),
                 "<div class=\"card\"><table><thead><tr><th></th><th>planned</th><th>measured</th>"
                 "<th>difference</th></tr></thead><tbody>" +
                     rows + "</tbody></table></div>");
}

// ---- configuration

std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string config_section(const ReportRun& run) {
  const Config defaults;
  std::string rows;
  for (const Section& part : config_sections())
    for (const Field& field : part.fields) {
      const Json value = field.get(run.config);
      if (value == field.get(defaults)) continue;
      rows += fmt::format("<tr><td>{}</td><td class=\"left wraps\">{}</td></tr>",
                          escaped(part.path(field)), escaped(value_text(value)));
    }
  std::string folder = run.folder;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const std::string command =
      shell_line({"frugal", "train", folder + "/config.json", "--out", folder + "_again"});
  return section(
      "config", "Configuration", "The command trains the same network again.",
      fmt::format("<div class=\"copy\"><pre>{}</pre></div><div class=\"card\"><h3>Keys that differ "
                  "from their defaults</h3><table><tbody>{}</tbody></table></div><details><summary>"
                  "All keys, as JSON</summary><pre>{}</pre></details>",
                  escaped(command, 2000), rows,
                  escaped_lines(run.document.dump(2, ' ', false, Json::error_handler_t::replace))));
}

std::string header(const ReportRun& run, const RunFacts& facts) {
  std::string about = escaped(facts.title) + " · " + escaped(run.config.data.name);
  about += fmt::format(" · {} {}, {} {}", counted(facts.step), noun_for(facts.step, "step"),
                       counted(facts.epoch), noun_for(facts.epoch, "epoch"));
  if (run.summary.is_object() && run.summary.contains("version") &&
      run.summary["version"].is_string())
    about += " · frugal " + escaped(run.summary["version"].get<std::string>());
  return fmt::format("<header><h1>{}<span class=\"status{}\">{}</span></h1><p>{}</p></header>\n",
                     escaped(run.name), style_of(run.status), text_of(run.status), about);
}

// ---- several runs

struct Compared {
  const ReportRun& run;
  RunFacts facts;
};

std::string overlay_header(const std::vector<Compared>& all) {
  std::string names;
  for (const Compared& each : all) names += (names.empty() ? "" : ", ") + escaped(each.run.name);
  return fmt::format("<header><h1>{}</h1><p>{}</p></header>\n", with_noun(all.size(), "run"),
                     names);
}

std::string comparison(const std::vector<Compared>& all) {
  std::string text = "<div class=\"scroll\"><table><thead><tr><th></th>";
  for (size_t i = 0; i < all.size(); ++i)
    text +=
        fmt::format("<th><i class=\"key c{}\"></i>{}</th>", i % kColours, escaped(all[i].run.name));
  text += "</tr></thead><tbody>";
  const auto row = [&](const std::string& title, const auto& of) {
    std::string cells;
    bool any = false;
    for (const Compared& each : all) {
      const std::string value = of(each);
      any = any || value != "–";
      cells += "<td>" + value + "</td>";
    }
    if (any) text += "<tr><td>" + title + "</td>" + cells + "</tr>";
  };
  const auto beside_first = [&](const std::optional<double>& value,
                                const std::optional<double>& first, const std::string& shown) {
    if (!value) return std::string("–");
    if (!first || *first <= 0 || value == first) return shown;
    return fmt::format("{} <small>{}</small>", shown, times(*value / *first));
  };
  const auto bytes = [&](const std::string& title, std::optional<int64_t> RunFacts::*member) {
    row(title, [&](const Compared& each) {
      const auto as_double = [](const std::optional<int64_t>& b) {
        return b ? std::optional(static_cast<double>(*b)) : std::nullopt;
      };
      return beside_first(as_double(each.facts.*member), as_double(all[0].facts.*member),
                          or_dash(each.facts.*member));
    });
  };
  row("run", [](const Compared& each) { return std::string(text_of(each.run.status)); });
  row("network and compression", [](const Compared& each) { return escaped(each.facts.title); });
  row("test accuracy", [](const Compared& each) {
    return each.facts.has_accuracy ? or_dash(each.facts.accuracy, "{:.2f} %", 100) : "–";
  });
  row("best test accuracy", [](const Compared& each) {
    return each.facts.has_accuracy ? or_dash(each.facts.best_accuracy, "{:.2f} %", 100) : "–";
  });
  row("test metric", [](const Compared& each) {
    return each.facts.metric_value
               ? fmt::format("{} {:.4f}", escaped(each.facts.metric), *each.facts.metric_value)
               : "–";
  });
  row("test loss", [](const Compared& each) { return or_dash(each.facts.test_loss, "{:.4f}"); });
  row("train loss", [](const Compared& each) { return or_dash(each.facts.train_loss, "{:.4f}"); });
  bytes("activation memory", &RunFacts::activation);
  bytes("of it packed", &RunFacts::packed);
  bytes("peak memory", &RunFacts::peak);
  bytes("whole process, highest", &RunFacts::rss);
  row("bits of a packed value", [](const Compared& each) {
    return each.facts.recorded.empty() ? "–"
                                       : or_dash(each.facts.recorded.back().packed_bits, "{:.2f}");
  });
  row("step time, median", [&](const Compared& each) {
    return beside_first(each.facts.step_ms, all[0].facts.step_ms,
                        or_dash(each.facts.step_ms, "{:.1f} ms"));
  });
  row("speed", [](const Compared& each) {
    return each.facts.rate
               ? fmt::format("{} {}/s", short_number(*each.facts.rate), escaped(each.facts.unit))
               : "–";
  });
  if (std::any_of(all.begin(), all.end(),
                  [](const Compared& each) { return each.facts.ranks.has_value(); })) {
    row("ranks", [](const Compared& each) {
      return each.facts.ranks ? counted(*each.facts.ranks) : counted(1);
    });
    row("adding up gradients, of a step",
        [](const Compared& each) { return or_dash(each.facts.communication, "{:.1f} %", 100); });
    row("waiting for that",
        [](const Compared& each) { return or_dash(each.facts.waiting, "{:.1f} %", 100); });
    row("slowest over mean rank",
        [](const Compared& each) { return or_dash(each.facts.imbalance, "{:.1f} %", 100); });
  }
  row("steps", [](const Compared& each) { return counted(each.facts.step); });
  return text + "</tbody></table></div><p class=\"note\">0.50x: half of the first run's.</p>";
}

std::string differing_keys(const std::vector<Compared>& all) {
  std::string rows;
  for (const Section& part : config_sections())
    for (const Field& field : part.fields) {
      const Json first = field.get(all[0].run.config);
      if (std::all_of(all.begin(), all.end(),
                      [&](const Compared& each) { return field.get(each.run.config) == first; }))
        continue;
      rows += "<tr><td>" + escaped(part.path(field)) + "</td>";
      for (const Compared& each : all)
        rows +=
            "<td class=\"wraps\">" + escaped(value_text(field.get(each.run.config)), 80) + "</td>";
      rows += "</tr>";
    }
  if (rows.empty()) return "";
  std::string text = "<div class=\"scroll\"><table><thead><tr><th>key</th>";
  for (const Compared& each : all) text += "<th>" + escaped(each.run.name) + "</th>";
  return text + "</tr></thead><tbody>" + rows + "</tbody></table></div>";
}

std::string overlaid(const std::vector<Compared>& all, const std::string& type,
                     const std::string& pointer, ChartOptions options) {
  options.named = true;
  std::vector<Line> lines;
  for (size_t i = 0; i < all.size(); ++i)
    lines.push_back({all[i].run.name, points_of(all[i].run, type, pointer), static_cast<int>(i),
                     i >= static_cast<size_t>(kColours)});
  return line_chart(std::move(lines), options);
}

std::string overlaid_memory(const std::vector<Compared>& all) {
  std::vector<Line> lines;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& recorded = all[i].facts.recorded;
    if (recorded.empty() || !recorded.back().memory.is_object() ||
        !recorded.back().memory.contains("curve"))
      continue;
    const Json& curve = recorded.back().memory["curve"];
    const size_t moments = phases_of(curve).size();
    Line line{all[i].run.name, {}, static_cast<int>(i), i >= static_cast<size_t>(kColours)};
    std::vector<const Json*> parts;
    for (const Category category : kOrder)
      parts.push_back(&curve.at(std::string(name_of(category))));
    for (size_t at = 0; at < moments; ++at) {
      double sum = 0;
      for (const Json* bytes : parts)
        sum += (bytes->is_array() ? bytes->at(at) : *bytes).get<double>();
      line.points.emplace_back(
          100.0 * static_cast<double>(at) / static_cast<double>(std::max<size_t>(1, moments - 1)),
          sum);
    }
    lines.push_back(std::move(line));
  }
  return line_chart(std::move(lines), {.title = "Memory over one step",
                                       .x = "% of the step's allocations and releases",
                                       .y = "bytes of all tensors",
                                       .unit = Unit::bytes});
}

std::string peaks(const std::vector<Compared>& all) {
  int64_t most = 0;
  for (const Compared& each : all) most = std::max(most, each.facts.peak.value_or(0));
  std::string text;
  for (const Compared& each : all) {
    if (!each.facts.at_peak.is_object()) continue;
    std::vector<std::pair<std::string, double>> parts;
    for (const Category category : kOrder)
      parts.emplace_back(std::string(name_of(category)),
                         each.facts.at_peak.value(std::string(name_of(category)), 0.0));
    text += split_bar(escaped(each.run.name), parts, static_cast<double>(most),
                      [](const std::string& name) { return name; });
  }
  return text.empty() ? ""
                      : "<div class=\"card splits\"><h3>Peak by category</h3>" + text + "</div>";
}

}  // namespace

std::string report_page(const ReportRun& run) {
  try {
    const RunFacts facts = facts_of(run);
    const std::string body = curves(run, facts) + memory_section(facts) + tensors_section(facts) +
                             bits_section(run, facts) + variance_section(run, facts) +
                             plan_section(facts) + config_section(run);
    return page(run.name + ": " + facts.title,
                header(run, facts) + tiles(facts) + navigation(body) + body);
  } catch (const std::exception& e) {
    throw Error(fmt::format("[report] the files of {} are not those of a run: {}",
                            in_quotes(run.folder), data::json_reason(e)));
  }
}

std::string overlay_page(const std::vector<ReportRun>& runs) {
  try {
    std::vector<Compared> all;
    for (const ReportRun& run : runs) all.push_back({run, facts_of(run)});
    const bool right = std::all_of(all.begin(), all.end(),
                                   [](const Compared& each) { return each.facts.has_accuracy; });
    std::string curves = overlaid(all, "epoch", "/test_loss", {.title = "Test loss", .y = "loss"});
    if (right)
      curves += overlaid(all, "epoch", "/test_accuracy",
                         {.title = "Test accuracy", .y = "accuracy", .unit = Unit::percent});
    curves += overlaid(all, "step", "/loss", {.title = "Train loss", .y = "loss"});
    if (right)
      curves += overlaid(all, "step", "/accuracy",
                         {.title = "Train accuracy", .y = "accuracy", .unit = Unit::percent});
    const std::string noise =
        overlaid(all, "convergence", "/added_share",
                 {.title = "What compression adds to the variance of minibatches",
                  .y = "share",
                  .unit = Unit::percent}) +
        overlaid(all, "widths", "/average_bits",
                 {.title = "Average bits", .y = "bits of a packed value"});
    const auto grid = [](const std::string& body) {
      return body.empty() ? "" : "<div class=\"grid\">" + body + "</div>";
    };
    const std::string body =
        section("compare", "Side by side", "Multiples are those of the first run.",
                comparison(all)) +
        section("curves", "Loss and accuracy", "Over the steps of each run.", grid(curves)) +
        section("memory", "Memory", "What the last recorded step took, and the highest peak.",
                grid(overlaid_memory(all) + peaks(all))) +
        section("bits", "Bits and noise", "What the policies decided and what it costs.",
                grid(noise)) +
        section("config", "Configuration", "Keys in which the runs differ.", differing_keys(all));
    return page(with_noun(all.size(), "run"), overlay_header(all) + navigation(body) + body);
  } catch (const std::exception& e) {
    throw Error(fmt::format("[report] the files are not those of runs: {}", data::json_reason(e)));
  }
}

}  // namespace frugal::apps
