#include "ops/onednn.h"

#include <sys/mman.h>

#include <atomic>
#include <unordered_map>
#include <utility>

#include "core/memo.h"
#include "core/parallel.h"
#include "ops/onednn_instructions.h"
#include "ops/precision.h"

namespace frugal::ops::onednn {
namespace {

constexpr size_t kConvolutions = 1024, kProducts = 256;  // plans of a thread

dnnl::memory memory_of(const Desc& layout, const void* data) {
  return dnnl::memory(layout, engine(), const_cast<void*>(data));
}

dnnl::memory::data_type type_of(DType dtype) {
  FRUGAL_ASSERT(dtype == DType::f32 || dtype == DType::bf16);
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

Tensor bytes(const Desc& layout, Device device = kCpu) {
  CategoryScope scope(Category::workspace);
  return Tensor::empty({static_cast<int64_t>(layout.get_size())}, DType::u8, device);
}

void run(const dnnl::primitive& primitive, std::unordered_map<int, dnnl::memory>& arguments) {
  primitive.execute(stream(), arguments);
  stream().wait();
}
void run(const dnnl::primitive& primitive, const Desc& scratchpad,
         std::unordered_map<int, dnnl::memory>& arguments) {
  Tensor scratch;
  if (scratchpad.get_size() > 0) {
    scratch = bytes(scratchpad);
    arguments.emplace(DNNL_ARG_SCRATCHPAD, memory_of(scratchpad, scratch.raw()));
  }
  run(primitive, arguments);
}

void reorder(const Repack& step, const Desc& from, const void* source, const Desc& to,
             void* target) {
  if (step.adjoint)
    return pack_adjoint_weight(*step.adjoint, static_cast<const float*>(source),
                               static_cast<float*>(target));
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_FROM, memory_of(from, source)},
                                                  {DNNL_ARG_TO, memory_of(to, target)}};
  run(step.reorder.get(), step.scratchpad, arguments);
}

// Adds parts[1], parts[2] and so on to `sum`, in this order.
void add_parts(float* sum, const std::vector<Tensor>& parts) {
  const int64_t n = parts.back().numel() / static_cast<int64_t>(sizeof(float));
  constexpr int64_t kGrain = 1 << 14;
  if (parts.size() > 1)
    parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
      for (size_t i = 1; i < parts.size(); ++i) {
        const float* part = static_cast<const float*>(parts[i].raw());
        for (int64_t k = begin; k < end; ++k) sum[k] += part[k];
      }
    });
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine cpu = [] {
    limit_instructions();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

dnnl::stream& stream() {
  thread_local dnnl::stream cpu(engine());
  return cpu;
}

void expect_room_for_code() {
  // More than the code of any primitive takes. Pages that nobody touches cost nothing.
  constexpr size_t kRoom = size_t{16} << 20;
  void* const room = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    throw Error(
        "out of memory: oneDNN needs up to 16 MiB of address space for the code that it generates, "
        "and the system gives no more; raise the limit of the process (ulimit -v)");
  munmap(room, kRoom);
}

Desc desc(const std::vector<int64_t>& dims, Tag tag, DType dtype) {
  return Desc(dims, type_of(dtype), tag);
}

Desc desc(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, DType dtype) {
  return Desc(dims, type_of(dtype), strides);
}

bool takes(DType dtype) { return dtype == DType::f32 || (dtype == DType::bf16 && bf16_products()); }

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

dnnl::primitive_attr adding() {
  dnnl::primitive_attr attr = user_scratchpad();
  dnnl::post_ops after;
  after.append_sum();
  attr.set_post_ops(after);
  return attr;
}

std::optional<WeightTiles> tiles_of(const Desc& layout) {
#if DNNL_VERSION_MAJOR >= 3
  if (layout.get_format_kind() != dnnl::memory::format_kind::blocked) return std::nullopt;
  const auto dims = layout.get_dims(), padded = layout.get_padded_dims();
  const auto strides = layout.get_strides();
  const auto blocks = layout.get_inner_blks(), axes = layout.get_inner_idxs();
#else
  const dnnl_memory_desc_t& md = layout.data;
  if (md.format_kind != dnnl_blocked || md.extra.flags != dnnl_memory_extra_flag_none)
    return std::nullopt;
  const auto& blocking = md.format_desc.blocking;
  using Dims = std::vector<int64_t>;
  const Dims dims(md.dims, md.dims + md.ndims), padded(md.padded_dims, md.padded_dims + md.ndims);
  const Dims strides(blocking.strides, blocking.strides + md.ndims);
  const Dims blocks(blocking.inner_blks, blocking.inner_blks + blocking.inner_nblks);
  const Dims axes(blocking.inner_idxs, blocking.inner_idxs + blocking.inner_nblks);
#endif
  if (dims.size() != 4) return std::nullopt;
  WeightTiles t{dims[0], dims[1], dims[2], dims[3]};
  t.stride_k = strides[0], t.stride_c = strides[1];
  t.stride_r = strides[2], t.stride_s = strides[3];
  t.numel = padded[0] * padded[1] * padded[2] * padded[3];
  int64_t step = 1;  // the last block is the innermost
  for (size_t i = blocks.size(); i-- > 0;) {
    int64_t& tile = axes[i] == 0 ? t.tile_k : t.tile_c;
    const bool k_innermost = (axes[i] == 0) == (step == 1);
    if (axes[i] > 1 || tile > 1 || !k_innermost) return std::nullopt;
    tile = blocks[i];
    if (axes[i] == 1) t.inner_c = step;
    step *= blocks[i];
  }
  if (t.tile_k == 1) return std::nullopt;
  return t;
}

void Plan::repack(int id, const Desc& plain, const Desc& wanted, Direction direction) {
  if (plain == wanted) return;
  const bool input = direction == Direction::input;
  const dnnl::reorder::primitive_desc pd(
      engine(), input ? plain : wanted, engine(), input ? wanted : plain,
      direction == Direction::sum ? adding() : user_scratchpad());
  repacks.push_back({id,
                     plain,
                     wanted,
                     Lazy<dnnl::reorder>([pd] { return dnnl::reorder(pd); }),
                     pd.scratchpad_desc(),
                     {}});
}

const Plan& cached_plan(Work work, std::string key, std::function<Plan()> make) {
  // Ops are functions, so no object could own the plans of a thread.
  thread_local Memo<std::string, Plan> convolutions(kConvolutions), products(kProducts);
  // oneDNN splits the work when a primitive is made.
  key += fmt::format(" x{}", num_threads());
  return (work == Work::convolution ? convolutions : products).find_or_make(key, make);
}

void execute(const Plan& plan, std::initializer_list<Argument> inputs,
             std::initializer_list<Argument> outputs) {
  std::unordered_map<int, dnnl::memory> arguments;
  std::vector<Tensor> copies;  // one per repack
  auto bind = [&](const Argument& argument, Direction direction) {
    const Desc* layout = &argument.layout;
    const void* data = argument.data;
    for (const Repack& step : plan.repacks) {
      if (step.id != argument.id) continue;
      copies.push_back(bytes(step.wanted));
      if (direction == Direction::input)
        reorder(step, step.plain, data, step.wanted, copies.back().raw());
      layout = &step.wanted;
      data = copies.back().raw();
    }
    arguments.emplace(argument.id, memory_of(*layout, data));
  };
  for (const Argument& argument : inputs) bind(argument, Direction::input);
  for (const Argument& argument : outputs) bind(argument, Direction::output);
  run(plan.primitive.get(), plan.scratchpad, arguments);
  for (const Argument& argument : outputs)
    for (const Repack& step : plan.repacks)
      if (step.id == argument.id)
        reorder(step, step.wanted, arguments.at(step.id).get_data_handle(), step.plain,
                const_cast<void*>(argument.data));
}

void account(const Plan& plan) {
  std::vector<Tensor> copies;
  for (const Repack& step : plan.repacks) {
    copies.push_back(bytes(step.wanted, kMeta));
    if (!step.adjoint) bytes(step.scratchpad, kMeta);
  }
  bytes(plan.scratchpad, kMeta);
}

int64_t bytes_of(const Plan& plan) {
  auto sum = static_cast<int64_t>(plan.scratchpad.get_size());
  for (const Repack& step : plan.repacks)
    sum += static_cast<int64_t>(step.wanted.get_size() + step.scratchpad.get_size());
  return sum;
}
int64_t bytes_of(const std::vector<Share>& shares) {
  int64_t sum = 0;
  for (const Share& share : shares) sum += bytes_of(*share.plan);
  return sum;
}

void execute_shares(const Plan& whole, const std::vector<Share>& shares, const Argument& output) {
  const auto& repacks = whole.repacks;
  FRUGAL_ASSERT(!shares.empty() && repacks.size() <= 1);
  const Desc layout = repacks.empty() ? output.layout : repacks.front().wanted;
  std::vector<Tensor> scratchpads, parts;
  for (size_t i = 0; i < shares.size(); ++i) {
    const Plan& plan = *shares[i].plan;
    scratchpads.push_back(bytes(plan.scratchpad));
    parts.push_back(i == 0 && repacks.empty() ? Tensor() : bytes(layout));
    plan.primitive.get();  // one thread compiles all
  }
  const auto place_of = [&](size_t i) {
    return parts[i].defined() ? parts[i].raw() : const_cast<void*>(output.data);
  };
  parallel_for(0, static_cast<int64_t>(shares.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      std::unordered_map<int, dnnl::memory> arguments;
      for (const Argument& input : shares[i].inputs)
        arguments.emplace(input.id, memory_of(input.layout, input.data));
      arguments.emplace(output.id, memory_of(layout, place_of(i)));
      arguments.emplace(DNNL_ARG_SCRATCHPAD,
                        memory_of(shares[i].plan->scratchpad, scratchpads[i].raw()));
      run(shares[i].plan->primitive.get(), arguments);
    }
  });
  add_parts(static_cast<float*>(place_of(0)), parts);
  if (!repacks.empty())
    reorder(repacks.front(), layout, place_of(0), repacks.front().plain,
            const_cast<void*>(output.data));
}

void account_shares(const Plan& whole, const std::vector<Share>& shares, const Desc& output) {
  const auto& repacks = whole.repacks;
  std::vector<Tensor> rooms;
  for (const Share& share : shares) rooms.push_back(bytes(share.plan->scratchpad, kMeta));
  for (size_t i = repacks.empty() ? 1 : 0; i < shares.size(); ++i)
    rooms.push_back(bytes(repacks.empty() ? output : repacks.front().wanted, kMeta));
  if (!repacks.empty()) bytes(repacks.front().scratchpad, kMeta);
}

}  // namespace frugal::ops::onednn

namespace frugal::ops {
namespace {

std::atomic<bool> chosen_bf16_products{true};

}  // namespace

void set_bf16_products(bool multiplies) { chosen_bf16_products = multiplies; }
bool bf16_products() { return chosen_bf16_products && processor_multiplies_bf16(); }

bool processor_multiplies_bf16() { return onednn::uses_avx512_bf16(); }

}  // namespace frugal::ops
