#include "ops/cuda/cublas.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <memory>
#include <mutex>

#include "core/cuda/cuda.h"
#include "core/dynamic_library.h"
#include "core/memo.h"
#include "ops/precision.h"

namespace frugal::ops::cublas {
namespace {

constexpr size_t kMostPlans = 4096;

int64_t most_workspace() { return library_workspace(convolution_workspace(), false); }

// The functions of the library, which is opened at the first use: so the program starts where it is
// missing.
#define FRUGAL_TEXT_OF(x) #x
#define FRUGAL_TEXT(x) FRUGAL_TEXT_OF(x)
struct Functions {
  static constexpr const char* kName = "libcublasLt.so." FRUGAL_TEXT(CUBLAS_VER_MAJOR);
  DynamicLibrary library{{kName, std::string(FRUGAL_CUDA_LIBRARY_DIR "/") + kName},
                         "cuBLASLt comes with the CUDA toolkit; LD_LIBRARY_PATH may name its "
                         "folder; device=cpu needs neither"};
#define FRUGAL_FUNCTION(name) decltype(&::name) name = library.function<decltype(&::name)>(#name)
  FRUGAL_FUNCTION(cublasLtCreate);
  FRUGAL_FUNCTION(cublasLtGetStatusName);
  FRUGAL_FUNCTION(cublasLtGetStatusString);
  FRUGAL_FUNCTION(cublasLtMatmul);
  FRUGAL_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
  FRUGAL_FUNCTION(cublasLtMatmulDescCreate);
  FRUGAL_FUNCTION(cublasLtMatmulDescDestroy);
  FRUGAL_FUNCTION(cublasLtMatmulDescSetAttribute);
  FRUGAL_FUNCTION(cublasLtMatmulPreferenceCreate);
  FRUGAL_FUNCTION(cublasLtMatmulPreferenceDestroy);
  FRUGAL_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  FRUGAL_FUNCTION(cublasLtMatrixLayoutCreate);
  FRUGAL_FUNCTION(cublasLtMatrixLayoutDestroy);
  FRUGAL_FUNCTION(cublasLtMatrixLayoutSetAttribute);
#undef FRUGAL_FUNCTION
};
const Functions& lt() {
  static const auto* one = new Functions;
  return *one;
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(fmt::format("[cublas] {}: {} ({})", call, lt().cublasLtGetStatusString(status),
                          lt().cublasLtGetStatusName(status)));
}
#define FRUGAL_CUBLAS_CHECK(call) check((call), #call)

// Owners of the library's descriptors.
template <class T, auto kDestroy>
struct Destroy {
  using pointer = T;
  void operator()(T handle) const { (lt().*kDestroy)(handle); }
};
template <class T, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T, kDestroy>>;
using Operation = Owned<cublasLtMatmulDesc_t, &Functions::cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, &Functions::cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &Functions::cublasLtMatmulPreferenceDestroy>;

template <class V>
void set(const Operation& to, cublasLtMatmulDescAttributes_t name, const V& value) {
  FRUGAL_CUBLAS_CHECK(lt().cublasLtMatmulDescSetAttribute(to.get(), name, &value, sizeof(value)));
}
template <class V>
void set(const Layout& to, cublasLtMatrixLayoutAttribute_t name, const V& value) {
  FRUGAL_CUBLAS_CHECK(lt().cublasLtMatrixLayoutSetAttribute(to.get(), name, &value, sizeof(value)));
}
template <class V>
void set(const Preference& to, cublasLtMatmulPreferenceAttributes_t name, const V& value) {
  FRUGAL_CUBLAS_CHECK(
      lt().cublasLtMatmulPreferenceSetAttribute(to.get(), name, &value, sizeof(value)));
}

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::bf16) return CUDA_R_16BF;
  FRUGAL_ASSERT(dtype == DType::f32);
  return CUDA_R_32F;
}

cublasComputeType_t compute_of(const Gemm& p) {
  const bool rounds = p.input == DType::f32 && matmul_precision() == MatmulPrecision::tf32;
  return rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue_of(const Gemm& p) {
  return p.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// The alignment that kernels may assume of an address, at most 256.
uint32_t alignment_of(const void* data) {
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(data)) | 256u;
  return uint32_t{1} << std::countr_zero(address);
}

// cuBLASLt's matrices are column-major: what we call b, row by row, is its first operand A
// transposed, and c^T = b^T a^T.
struct Plan {
  Operation operation;
  Layout b, a, c;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
  bool found = false;

  explicit Plan(const Gemm& p) {
    cublasLtMatmulDesc_t made = nullptr;
    FRUGAL_CUBLAS_CHECK(lt().cublasLtMatmulDescCreate(&made, compute_of(p), CUDA_R_32F));
    operation.reset(made);
    set(operation, CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(operation, CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
    point_to(p);
    b = operand(p.b, p.k, p.n, p);
    a = operand(p.a, p.m, p.k, p);
    c = layout(p.output, p.n, p.m, p.c_leading, p.c_stride, p.batch);
  }

  // Sets the addresses that belong to the operation itself.
  void point_to(const Gemm& p) {
    if (p.bias != nullptr) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }

  void search(cublasLtHandle_t handle, const Gemm& p) {
    cublasLtMatmulPreference_t made = nullptr;
    FRUGAL_CUBLAS_CHECK(lt().cublasLtMatmulPreferenceCreate(&made));
    const Preference preference(made);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<uint64_t>(most_workspace()));
    // If a sum is split, its parts are added as f32, in order.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
    cublasLtMatmulHeuristicResult_t result{};
    int results = 0;
    const cublasStatus_t status =
        lt().cublasLtMatmulAlgoGetHeuristic(handle, operation.get(), b.get(), a.get(), c.get(),
                                            c.get(), preference.get(), 1, &result, &results);
    found = status == CUBLAS_STATUS_SUCCESS && results > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    if (!found && status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE)
      FRUGAL_CUBLAS_CHECK(status);
    algorithm = result.algo;
    workspace = result.workspaceSize;
  }

 private:
  // The layout of an operand [rows, columns] in memory.
  static Layout operand(const Operand& x, int64_t rows, int64_t columns, const Gemm& p) {
    if (x.transposed) std::swap(rows, columns);
    return layout(p.input, columns, rows, x.leading, x.stride, p.batch);
  }
  static Layout layout(DType dtype, int64_t rows, int64_t columns, int64_t leading, int64_t stride,
                       int64_t batch) {
    cublasLtMatrixLayout_t made = nullptr;
    FRUGAL_CUBLAS_CHECK(lt().cublasLtMatrixLayoutCreate(&made, type_of(dtype),
                                                        static_cast<uint64_t>(rows),
                                                        static_cast<uint64_t>(columns), leading));
    Layout out(made);
    if (batch > 1) {
      set(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
      set(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
    }
    return out;
  }
};

using Key = std::array<int64_t, 21>;

Key key_of(const Gemm& p) {
  return {p.m,
          p.n,
          p.k,
          p.batch,
          static_cast<int64_t>(p.input),
          static_cast<int64_t>(p.output),
          compute_of(p),
          p.a.transposed,
          p.a.leading,
          p.a.stride,
          p.b.transposed,
          p.b.leading,
          p.b.stride,
          p.c_leading,
          p.c_stride,
          epilogue_of(p),
          alignment_of(p.a.data),
          alignment_of(p.b.data),
          alignment_of(p.c),
          alignment_of(p.bias),
          most_workspace()};
}

struct Library {
  std::mutex mutex;
  cublasLtHandle_t handle = nullptr;
  Memo<Key, Plan> plans{kMostPlans};

  const Plan& plan(const Gemm& p) {
    const Key key = key_of(p);
    if (Plan* known = plans.find(key)) {
      known->point_to(p);
      return *known;
    }
    Plan made(p);
    made.search(handle, p);
    return plans.put(key, std::move(made));
  }
};

// The library handle of the current device. Never destroyed: at the end of the process the driver
// may be gone already.
Library& library() {
  static auto* all = new std::map<int, Library>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int device = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&device));
  Library& one = (*all)[device];
  if (one.handle == nullptr) FRUGAL_CUBLAS_CHECK(lt().cublasLtCreate(&one.handle));
  return one;
}

}  // namespace

void open_library() { lt(); }

bool gemm(const Gemm& p) {
  Library& one = library();
  const std::lock_guard lock(one.mutex);
  const Plan& plan = one.plan(p);
  if (!plan.found) {
    FRUGAL_CHECK(p.bias != nullptr,
                 "[matmul] cuBLASLt has no kernel for [{}, {}] x [{}, {}] of {}, {} at a time", p.m,
                 p.k, p.k, p.n, name_of(p.input), p.batch);
    return false;
  }
  CategoryScope scope(Category::workspace);
  int device = 0;
  FRUGAL_CUDA_CHECK(cudaGetDevice(&device));
  const Tensor workspace =
      Tensor::empty({static_cast<int64_t>(plan.workspace)}, DType::u8, {DeviceType::cuda, device});
  FRUGAL_CUBLAS_CHECK(lt().cublasLtMatmul(one.handle, plan.operation.get(), &p.alpha, p.b.data,
                                          plan.b.get(), p.a.data, plan.a.get(), &p.beta, p.c,
                                          plan.c.get(), p.c, plan.c.get(), &plan.algorithm,
                                          workspace.raw(), plan.workspace, cuda::stream()));
  return true;
}

}  // namespace frugal::ops::cublas
