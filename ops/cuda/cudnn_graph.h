// cuDNN's backend API with owners for its objects: operation graphs, the search for an engine, and
// plans that are kept. Included by ops/cuda/cudnn*.cu only. Uses nothing that is newer than cuDNN
// 9.0, except engine_elsewhere().
#pragma once
#include <cudnn_backend.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/dynamic_library.h"
#include "core/memory.h"

namespace frugal::ops::cudnn {

// The functions of the library, which is opened at the first use: so the program starts where it is
// missing.
#define FRUGAL_TEXT_OF(x) #x
#define FRUGAL_TEXT(x) FRUGAL_TEXT_OF(x)
struct Functions {
  static constexpr const char* kName = "libcudnn.so." FRUGAL_TEXT(CUDNN_MAJOR);
  DynamicLibrary library{{kName, std::string(FRUGAL_CUDNN_LIBRARY_DIR "/") + kName},
                         "cuDNN is a package of its own beside the CUDA toolkit; LD_LIBRARY_PATH "
                         "may name its folder; device=cpu needs neither"};
#define FRUGAL_FUNCTION(name) decltype(&::name) name = library.function<decltype(&::name)>(#name)
  FRUGAL_FUNCTION(cudnnBackendCreateDescriptor);
  FRUGAL_FUNCTION(cudnnBackendDestroyDescriptor);
  FRUGAL_FUNCTION(cudnnBackendExecute);
  FRUGAL_FUNCTION(cudnnBackendFinalize);
  FRUGAL_FUNCTION(cudnnBackendGetAttribute);
  FRUGAL_FUNCTION(cudnnBackendSetAttribute);
  FRUGAL_FUNCTION(cudnnCreate);
  FRUGAL_FUNCTION(cudnnGetErrorString);
  FRUGAL_FUNCTION(cudnnGetLastErrorString);
  FRUGAL_FUNCTION(cudnnGetVersion);
  FRUGAL_FUNCTION(cudnnSetStream);
#undef FRUGAL_FUNCTION
};
const Functions& api();

// Thrown if the library cannot do what was asked, although nothing went wrong.
struct Unsupported : Error {
  using Error::Error;
};
// Errors: Unsupported, OutOfMemory or Error, with the text "[cudnn] WHAT: the status (the library's
// own words)".
void check(cudnnStatus_t status, const std::string& what);

template <class V>
struct TypeOf;  // the library's name for attributes of the C++ type V
#define FRUGAL_CUDNN_TYPE(type, name)                                       \
  template <>                                                               \
  struct TypeOf<type> {                                                     \
    static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_##name; \
  }
FRUGAL_CUDNN_TYPE(int64_t, INT64);
FRUGAL_CUDNN_TYPE(float, FLOAT);
FRUGAL_CUDNN_TYPE(double, DOUBLE);
FRUGAL_CUDNN_TYPE(bool, BOOLEAN);
FRUGAL_CUDNN_TYPE(cudnnHandle_t, HANDLE);
FRUGAL_CUDNN_TYPE(cudnnDataType_t, DATA_TYPE);
FRUGAL_CUDNN_TYPE(cudnnConvolutionMode_t, CONVOLUTION_MODE);
FRUGAL_CUDNN_TYPE(cudnnPointwiseMode_t, POINTWISE_MODE);
FRUGAL_CUDNN_TYPE(cudnnReduceTensorOp_t, REDUCTION_OPERATOR_TYPE);
FRUGAL_CUDNN_TYPE(cudnnBackendHeurMode_t, HEUR_MODE);
FRUGAL_CUDNN_TYPE(cudnnBackendNumericalNote_t, NUMERICAL_NOTE);
FRUGAL_CUDNN_TYPE(cudnnBackendKnobType_t, KNOB_TYPE);
#undef FRUGAL_CUDNN_TYPE

// Owns one descriptor of the library and destroys it. `name` is for messages.
class Descriptor {
 public:
  Descriptor(cudnnBackendDescriptorType_t type, const char* name);

  template <class V>
  Descriptor& set(cudnnBackendAttributeName_t attribute, V value) {
    return put(attribute, TypeOf<V>::value, 1, &value);
  }
  template <class V>
  Descriptor& set(cudnnBackendAttributeName_t attribute, const std::vector<V>& values) {
    return put(attribute, TypeOf<V>::value, static_cast<int64_t>(values.size()), values.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t attribute, const Descriptor& value);
  Descriptor& set_descriptors(cudnnBackendAttributeName_t attribute,
                              const std::vector<cudnnBackendDescriptor_t>& values);
  Descriptor& set_pointers(cudnnBackendAttributeName_t attribute, const std::vector<void*>& values);
  Descriptor& finalize();  // Errors: Unsupported, OutOfMemory

  template <class V>
  V value(cudnnBackendAttributeName_t attribute) const {
    V out{};
    int64_t count = 0;
    check(api().cudnnBackendGetAttribute(get(), attribute, TypeOf<V>::value, 1, &count, &out),
          where(attribute));
    return out;
  }
  // Reads at most `most` values of an attribute.
  template <class V>
  std::vector<V> values(cudnnBackendAttributeName_t attribute, int64_t most) const {
    std::vector<V> out(static_cast<size_t>(most));
    int64_t count = 0;
    check(api().cudnnBackendGetAttribute(get(), attribute, TypeOf<V>::value, most, &count,
                                         out.data()),
          where(attribute));
    out.resize(static_cast<size_t>(std::min(count, most)));
    return out;
  }
  // Reads at most `most` descriptors of `type` from an attribute.
  std::vector<Descriptor> descriptors(cudnnBackendAttributeName_t attribute,
                                      cudnnBackendDescriptorType_t type, const char* name,
                                      int64_t most) const;

  cudnnBackendDescriptor_t get() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(void* handle) const { api().cudnnBackendDestroyDescriptor(handle); }
  };
  Descriptor& put(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                  int64_t count, const void* values);
  std::string where(cudnnBackendAttributeName_t attribute) const;

  std::unique_ptr<void, Destroy> handle_;
  const char* name_;
};

cudnnDataType_t type_of(DType dtype);  // f32, bf16

// A tensor of a graph. When a plan runs, `id` is bound to the tensor's address.
struct Operand {
  int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> dims, strides;
  int64_t alignment = 16;
  bool is_virtual = false;   // a value between two operations, which is never in memory
  bool is_by_value = false;  // a number whose address is on the host
};

// Operations and their parts, which live until a plan is made.
class Graph {
 public:
  const Descriptor& tensor(const Operand& operand);
  Descriptor& part(cudnnBackendDescriptorType_t type, const char* name);  // the graph owns it
  void add(Descriptor& operation);                                        // finalizes it
  // y = mode(x, b), or mode(x) without b; computed in f32.
  void pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
                 const Descriptor& y);
  const std::vector<cudnnBackendDescriptor_t>& operations() const { return operations_; }

 private:
  std::deque<Descriptor> parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
};

struct Binding {
  int64_t id;
  const void* data;
};

// What a plan must satisfy.
struct Wish {
  bool exact = false;     // excludes engines that round f32 inputs
  int64_t workspace = 0;  // the most bytes; an engine that needs no more is chosen if there is one
};
// Runs the graph that `build` makes. The plan for `key` and `wish` is searched for at the first
// call and kept. Where memory does not suffice for it, the plan with the smallest workspace runs.
// Returns false, and the log says why, where no engine takes the graph.  Errors: an engine fails
// and no other takes the graph; OutOfMemory.
bool run(const std::string& key, const Wish& wish, const std::function<Graph()>& build,
         const std::vector<Binding>& bindings);

#if CUDNN_VERSION >= 90800
// The engine that run() would take for the graph on another GPU, if its workspace may have any
// size. No GPU is needed here. properties: those of the other GPU, in JSON, as cuDNN writes them.
// An engine counts whose kernel was compiled and could not be loaded without a GPU.  Errors:
// Unsupported where there is none.
std::string engine_elsewhere(const Graph& graph, bool exact, const std::string& properties);
#endif

}  // namespace frugal::ops::cudnn
