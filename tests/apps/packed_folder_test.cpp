// Folders whose weights the library bitsandbytes has packed, written here by its published layout.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "apps/config/stored_run.h"
#include "apps/json.h"
#include "core/error.h"
#include "data/formats/safetensors.h"
#include "models/matrix_weight.h"
#include "tests/apps/run.h"
#include "train/run/weights.h"

namespace frugal::apps {
namespace {

struct RawTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class T>
std::string raw_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

void write_raw_safetensors(const std::string& path, const std::vector<RawTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const RawTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype},
                      {"shape", t.shape},
                      {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  write_file(path, std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text + data);
}

constexpr float kNormal[16] = {-1.0F,
                               -0.6961928009986877F,
                               -0.5250730514526367F,
                               -0.39491748809814453F,
                               -0.28444138169288635F,
                               -0.18477343022823334F,
                               -0.09105003625154495F,
                               0.0F,
                               0.07958029955625534F,
                               0.16093020141124725F,
                               0.24611230194568634F,
                               0.33791524171829224F,
                               0.44070982933044434F,
                               0.5626170039176941F,
                               0.7229568362236023F,
                               1.0F};
constexpr float kFloat4[16] = {
    0.0F,  0.0052083333F,  0.6666667F,  1.0F,  0.33333334F,  0.5F,  0.16666667F,  0.25F,
    -0.0F, -0.0052083333F, -0.6666667F, -1.0F, -0.33333334F, -0.5F, -0.16666667F, -0.25F};

// The signed dynamic map, step by step in f32 as it was published.
std::vector<float> dynamic_map() {
  std::vector<float> map = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int items = (1 << i) + 1;
    for (int k = 0; k + 1 < items; ++k) {
      const auto bound = [&](int j) {
        return 0.1F + 0.9F * static_cast<float>(j) / static_cast<float>(items - 1);
      };
      const float mean = (bound(k) + bound(k + 1)) / 2;
      const auto value = static_cast<float>(std::pow(10.0, i - 6) * mean);
      map.push_back(value);
      map.push_back(-value);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

template <class Map>
size_t nearest_in(const Map& map, float x) {
  size_t best = 0;
  for (size_t i = 1; i < std::size(map); ++i)
    if (std::fabs(map[i] - x) < std::fabs(map[best] - x)) best = i;
  return best;
}

struct Packing {
  std::string type = "nf4";
  int64_t block = 64, nested_block = 256;
  bool nested = true;
};

// Writes the parts of a matrix, and what it stands for.
void pack_4_bits(const std::string& name, int64_t rows, int64_t columns,
                 const std::vector<float>& values, const Packing& packing,
                 std::vector<RawTensor>& out, std::vector<float>& whole) {
  const float* map = packing.type == "nf4" ? kNormal : kFloat4;
  const std::vector<float> list(map, map + 16), dynamic = dynamic_map();
  const auto n = static_cast<int64_t>(values.size());
  std::vector<float> scales;
  for (int64_t i = 0; i < n; i += packing.block) {
    float most = 0;
    for (int64_t k = i; k < std::min(n, i + packing.block); ++k)
      most = std::max(most, std::fabs(values[static_cast<size_t>(k)]));
    scales.push_back(most);
  }
  Json state = {{"quant_type", packing.type},
                {"blocksize", packing.block},
                {"dtype", "bfloat16"},
                {"shape", {rows, columns}}};
  std::vector<RawTensor> parts;
  const auto blocks = static_cast<int64_t>(scales.size());
  if (packing.nested) {
    float mean = 0;
    for (const float scale : scales) mean += scale / static_cast<float>(blocks);
    std::vector<uint8_t> codes;
    std::vector<float> nested;
    for (size_t i = 0; i < scales.size(); ++i) {
      const auto nested_block = static_cast<size_t>(packing.nested_block);
      if (i % nested_block == 0) {
        float most = 0;
        for (size_t k = i; k < std::min(scales.size(), i + nested_block); ++k)
          most = std::max(most, std::fabs(scales[k] - mean));
        nested.push_back(most);
      }
      codes.push_back(
          static_cast<uint8_t>(nearest_in(dynamic, (scales[i] - mean) / nested.back())));
      scales[i] = dynamic[codes.back()] * nested.back() + mean;
    }
    state["nested_blocksize"] = packing.nested_block;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = mean;
    parts.push_back({name + ".absmax", "U8", {blocks}, raw_bytes(codes)});
    parts.push_back(
        {name + ".nested_absmax", "F32", {static_cast<int64_t>(nested.size())}, raw_bytes(nested)});
    parts.push_back({name + ".nested_quant_map", "F32", {256}, raw_bytes(dynamic)});
  } else {
    parts.push_back({name + ".absmax", "F32", {blocks}, raw_bytes(scales)});
  }
  std::vector<uint8_t> codes(static_cast<size_t>((n + 1) / 2), 0);
  for (int64_t i = 0; i < n; ++i) {
    const float scale = scales[static_cast<size_t>(i / packing.block)];
    const size_t code = nearest_in(list, values[static_cast<size_t>(i)] / scale);
    codes[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(i % 2 == 0 ? code << 4 : code);
    whole.push_back(list[code] * scale);
  }
  out.push_back({name, "U8", {(n + 1) / 2, 1}, raw_bytes(codes)});
  out.insert(out.end(), parts.begin(), parts.end());
  out.push_back({name + ".quant_map", "F32", {16}, raw_bytes(list)});
  const std::string text = state.dump();
  out.push_back({name + ".quant_state.bitsandbytes__" + packing.type,
                 "U8",
                 {static_cast<int64_t>(text.size())},
                 text});
}

void pack_8_bits(const std::string& name, int64_t rows, int64_t columns,
                 const std::vector<float>& values, std::vector<RawTensor>& out,
                 std::vector<float>& whole) {
  std::vector<int8_t> codes;
  std::vector<float> maxima;
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = values.data() + row * columns;
    float most = 0;
    for (int64_t i = 0; i < columns; ++i) most = std::max(most, std::fabs(x[i]));
    maxima.push_back(most);
    for (int64_t i = 0; i < columns; ++i) {
      codes.push_back(static_cast<int8_t>(std::nearbyint(x[i] / most * 127)));
      whole.push_back(static_cast<float>(codes.back()) * (most / 127));
    }
  }
  const std::string layer = name.substr(0, name.size() - std::string(".weight").size());
  out.push_back({name, "I8", {rows, columns}, raw_bytes(codes)});
  out.push_back({layer + ".SCB", "F32", {rows}, raw_bytes(maxima)});
  out.push_back({layer + ".weight_format", "U8", {}, std::string(1, '\0')});
}

// A folder of random weights, one with what bitsandbytes makes of them, and one with what these
// stand for.
struct PackedFolders {
  TempFolder folder;
  std::vector<RawTensor> tensors;
  Json quantization;

  explicit PackedFolders(const Packing& packing) {
    const Ran made = frugal(fmt::format(
        "export " FRUGAL_CONFIGS
        "/shakespeare_llama.json --random --set data.name=random_tokens --set "
        "data.max_length=8 --set data.train_samples=16 --set data.batch_size=4 --set "
        "model.layers=2 --set model.width=48 --set model.heads=4 --set model.feed_forward=80 --set "
        "model.vocab_size=40 --format hf --output {}",
        folder / "base"));
    REQUIRE_MESSAGE(made.status == 0, made.err);
    const auto file = data::SafetensorsFile::open(folder / "base/model.safetensors");
    std::vector<RawTensor> whole;
    for (const std::string& name : file.names()) {
      const Tensor tensor = file.read(name);
      std::vector<int64_t> shape;
      for (int i = 0; i < tensor.dim(); ++i) shape.push_back(tensor.size(i));
      std::vector<float> values(tensor.data<float>(), tensor.data<float>() + tensor.numel());
      const bool packs = name.find("_proj.weight") != std::string::npos;
      std::vector<float> stands;
      if (packs && packing.type == "int8")
        pack_8_bits(name, shape[0], shape[1], values, tensors, stands);
      else if (packs)
        pack_4_bits(name, shape[0], shape[1], values, packing, tensors, stands);
      else
        tensors.push_back({name, "F32", shape, raw_bytes(values)});
      whole.push_back({name, "F32", shape, raw_bytes(packs ? stands : values)});
    }
    quantization = {{"quant_method", "bitsandbytes"},
                    {"load_in_4bit", packing.type != "int8"},
                    {"load_in_8bit", packing.type == "int8"},
                    {"bnb_4bit_quant_type", packing.type == "int8" ? "fp4" : packing.type},
                    {"bnb_4bit_use_double_quant", packing.nested},
                    {"bnb_4bit_compute_dtype", "bfloat16"},
                    {"bnb_4bit_quant_storage", "uint8"},
                    {"llm_int8_threshold", 6.0}};
    for (const char* name : {"packed", "whole"}) std::filesystem::create_directory(folder / name);
    std::filesystem::copy_file(folder / "base/config.json", folder / "whole/config.json");
    write_raw_safetensors(folder / "whole/model.safetensors", whole);
    write();
  }

  void write() {
    Json config = Json::parse(read_file(folder / "base/config.json"));
    config["quantization_config"] = quantization;
    write_file(folder / "packed/config.json", config.dump());
    write_raw_safetensors(folder / "packed/model.safetensors", tensors);
  }
  RawTensor& tensor(const std::string& ending) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const RawTensor& t) { return t.name.ends_with(ending); });
  }
  std::string bytes_of(const std::string& name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const RawTensor& t) { return t.name == name; });
    return found == tensors.end() ? "none" : found->bytes;
  }
  Ran train(const std::string& base, const std::string& more, const std::string& out) const {
    write_file(folder / "adapt.json", "{}");
    return frugal(fmt::format(
        "train {} --set model.weights={} --set adapter.type=lora --set data.name=random_tokens "
        "--set data.max_length=8 --set data.train_samples=16 --set data.batch_size=4 --set "
        "train.steps=3 --set optim.lr=0.01 --set train.log_interval=1 {} --out {}",
        folder / "adapt.json", folder / base, more, folder / out));
  }
  double loss(const std::string& run) const {
    const Ran judged = frugal(fmt::format("eval {} --weights last --json", folder / run));
    REQUIRE_MESSAGE(judged.status == 0, judged.err);
    return Json::parse(judged.out).at("loss").get<double>();
  }
};

void check_whole(PackedFolders& made) {
  const auto open = [&](const char* name) {
    return data::SafetensorsShards::open(made.folder / name);
  };
  const auto packed = train::described_weights(open("packed"));
  const auto whole = train::read_weights(open("whole"));
  CHECK(packed.size() >= whole.size());
  const Ran seen = frugal("inspect " + (made.folder / "packed"));
  CHECK_MESSAGE(seen.status == 0, seen.err);
  CHECK(has(seen.out, "all parameters are loaded"));
  // Without adapters, weights are whole, with the values that the codes stand for.
  const Ran both[] = {made.train("packed", "--set model.frozen=f32", "a"),
                      made.train("whole", "", "b")};
  for (const Ran& ran : both) REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(made.loss("a") == doctest::Approx(made.loss("b")).epsilon(1e-6));
}

}  // namespace

TEST_CASE("bitsandbytes: nf4 with double quantization keeps its bytes beside an adapter") {
  PackedFolders made({});
  check_whole(made);
  const Ran ran = made.train("packed", "", "run");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.err, "with their bytes as bitsandbytes has packed them: 14 weights"));
  CHECK(made.loss("run") == doctest::Approx(made.loss("b")).epsilon(1e-4));
  const StoredRun run = read_run(made.folder / "run");
  const auto network = stored_network(run, "last", kCpu);
  int packed = 0;
  for (const Module::NamedMatrix& m : network->matrices()) {
    if (!m.weight->packed.defined()) continue;
    ++packed;
    CAPTURE(m.name);
    CHECK(m.weight->packed.format == ops::MatrixFormat::nf4);
    for (const auto& [ending, part] : m.weight->packed.parts()) {
      const std::string bytes(static_cast<const char*>(part->raw()), part->nbytes());
      if (std::string(ending) == ".nested_offset") continue;
      CHECK(bytes == made.bytes_of(m.name + ending));
    }
  }
  CHECK(packed == 14);
  // A merged folder is a whole one, without quantization_config.
  const Ran merged = frugal(fmt::format("export {} --format merged --output {}",
                                        made.folder / "run", made.folder / "merged"));
  REQUIRE_MESSAGE(merged.status == 0, merged.err);
  CHECK_FALSE(has(read_file(made.folder / "merged/config.json"), "quantization_config"));
}

TEST_CASE("bitsandbytes: int8 keeps its bytes beside an adapter") {
  Packing packing;
  packing.type = "int8";
  PackedFolders made(packing);
  check_whole(made);
  const Ran ran = made.train("packed", "", "run");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.err, "with their bytes as bitsandbytes has packed them: 14 weights"));
  CHECK(made.loss("run") == doctest::Approx(made.loss("b")).epsilon(1e-4));
  const auto network = stored_network(read_run(made.folder / "run"), "last", kCpu);
  for (const Module::NamedMatrix& m : network->matrices()) {
    if (!m.weight->packed.defined()) continue;
    const Tensor& codes = m.weight->packed.codes;
    CHECK(std::string(static_cast<const char*>(codes.raw()), codes.nbytes()) ==
          made.bytes_of(m.name));
  }
}

TEST_CASE("bitsandbytes: other packings of 4 bits are read through f32") {
  for (const Packing& packing : {Packing{"fp4", 64, 256, true}, Packing{"nf4", 64, 256, false},
                                 Packing{"nf4", 128, 32, true}}) {
    CAPTURE(packing.type);
    CAPTURE(packing.block);
    PackedFolders made(packing);
    check_whole(made);
    CHECK(has(made.train("packed", "--set model.frozen=bf16", "run").err,
              "read as f32, because bitsandbytes has packed them otherwise than in nf4 with "
              "double quantization: 14 weights"));
  }
}

TEST_CASE("bitsandbytes: what is not understood names the file and the entry") {
  PackedFolders made({});
  const std::vector<RawTensor> good = made.tensors;
  const auto rejects = [&](const auto& change, const std::string& why) {
    CAPTURE(why);
    made.tensors = good;
    change();
    made.write();
    const Ran seen = frugal("inspect " + (made.folder / "packed"));
    CHECK(seen.status != 0);
    CHECK_MESSAGE(has(seen.err, why), seen.err);
    CHECK(has(seen.err, "packed/"));
  };
  const auto state = [&](const Json& patch) {
    RawTensor& t = made.tensor("quant_state.bitsandbytes__nf4");
    Json json = Json::parse(t.bytes);
    json.merge_patch(patch);
    t.bytes = json.dump();
    t.shape = {static_cast<int64_t>(t.bytes.size())};
  };
  const auto drop = [&](const std::string& ending) {
    const std::string name = made.tensor(ending).name;
    std::erase_if(made.tensors, [&](const RawTensor& t) { return t.name == name; });
  };
  for (const char* ending : {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"})
    rejects([&] { drop(std::string("weight") + ending); },
            std::string(ending) + "\": expected this part of a packed weight, got none");
  rejects([&] { drop("_proj.weight"); }, "expected the codes");
  rejects([&] { state({{"blocksize", 63}}); }, "blocksize: expected an even number, got 63");
  rejects([&] { state({{"blocksize", nullptr}}); }, "expected the entry blocksize, got none");
  rejects([&] { state({{"blocksize", 128}}); }, ".absmax\": expected u8 [");
  rejects([&] { state({{"quant_type", "fp4"}}); }, "quant_type: expected nf4, got \"fp4\"");
  rejects([&] { state({{"shape", {7}}}); }, "shape: expected the two extents of a matrix, got [7]");
  rejects([&] { state({{"shape", {4, 4}}}); }, "expected u8 [8, 1]");
  rejects([&] { state({{"rotation", "hadamard"}}); }, "expected no entry \"rotation\"");
  rejects([&] { state({{"nested_dtype", "float16"}}); }, "nested_dtype: expected float32");
  rejects([&] { made.tensor("quant_state.bitsandbytes__nf4").bytes[0] = '['; }, "expected JSON");
  rejects([&] { made.tensor("norm.weight").dtype = "I8"; }, "got");
  rejects([&] { made.tensor("quant_state.bitsandbytes__nf4").dtype = "BOOL"; },
          "expected a JSON text of at most 65536 bytes, got bool [");
  rejects(
      [&] {
        RawTensor& t = made.tensor("quant_state.bitsandbytes__nf4");
        t.bytes = "[]";
        t.shape = {2};
      },
      "expected a JSON object");
  rejects([&] { state({{"nested_offset", "much"}}); }, "nested_offset: expected a number, got");
  rejects(
      [&] {
        state({{"nested_blocksize", 0}});
      },
      "nested_blocksize: expected a whole number from 1 to 2^30, got 0");
  rejects([&] { state({{"nested_blocksize", nullptr}}); }, ".absmax\": expected f32 [");
  rejects(
      [&] {
        RawTensor second = made.tensor("quant_state.bitsandbytes__nf4");
        second.name.replace(second.name.size() - 3, 3, "fp4");
        made.tensors.push_back(second);
      },
      "expected one quant_state for the weight, got two");
  rejects(
      [&] {
        RawTensor& t = made.tensor("quant_state.bitsandbytes__nf4");
        t.name.replace(t.name.size() - 3, 3, "nf8");
      },
      "expected the type nf4 or fp4");
  const auto config = [&](const Json& patch, const std::string& why) {
    const Json before = made.quantization;
    rejects([&] { made.quantization.merge_patch(patch); }, why);
    made.quantization = before;
  };
  config({{"quant_method", "gptq"}}, "quantization_config.quant_method: expected \"bitsandbytes\"");
  config({{"bits", 4}}, "quantization_config.bits: expected no such key");
  config({{"load_in_8bit", true}}, "expected either load_in_4bit or load_in_8bit");
  config({{"bnb_4bit_quant_storage", "bfloat16"}}, "bnb_4bit_quant_storage: expected \"uint8\"");
}

TEST_CASE(
    "bitsandbytes: parts of other forms than int8 and 4 bits have name the file and the entry") {
  const auto rejects = [](PackedFolders& made, const std::string& why) {
    made.write();
    const Ran seen = frugal("inspect " + (made.folder / "packed"));
    CHECK(seen.status == 1);
    CHECK_MESSAGE(has(seen.err, why), seen.err);
    CHECK(has(seen.err, "packed/"));
  };
  Packing eight;
  eight.type = "int8";
  PackedFolders made(eight);
  const std::vector<RawTensor> good = made.tensors;
  made.tensor(".weight_format").bytes[0] = 1;
  rejects(made, "weight_format\": expected 0, which stands for rows in their order");
  made.tensors = good;
  made.tensor("_proj.weight").dtype = "U8";
  rejects(made, "expected a matrix of I8 beside ");
  made.tensors = good;
  made.tensor(".SCB").shape.push_back(1);
  rejects(made, ".SCB\": expected f32 [");
  Packing flat;
  flat.nested = false;
  PackedFolders plain(flat);
  RawTensor extra = plain.tensor(".absmax");
  extra.name.replace(extra.name.size() - 6, 6, "nested_absmax");
  plain.tensors.push_back(extra);
  rejects(plain, "expected no such part, as the quant_state has no nested_blocksize");
}

}  // namespace frugal::apps
