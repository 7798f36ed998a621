// cuDNN's backend API with owners: operation graphs, the search for an engine, plans that are kept.
// Included by ops/cudnn*.cu only. Nothing newer than cuDNN 9.0.
#pragma once
#include <cudnn_backend.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/memory.h"

namespace frugal::ops::cudnn {

// The library has no way to do what was asked; nothing went wrong.
struct Unsupported : Error {
  using Error::Error;
};
// Errors: "[cudnn] WHAT: the status (the library's own words)", as Unsupported, OutOfMemory or
// Error.
void check(cudnnStatus_t status, const std::string& what);

template <class V>
struct TypeOf;  // how an attribute of C++ type V is called
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

// One of the library's descriptors, which it destroys. `name` is for messages.
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
    check(cudnnBackendGetAttribute(get(), attribute, TypeOf<V>::value, 1, &count, &out),
          where(attribute));
    return out;
  }
  // At most `most` values.
  template <class V>
  std::vector<V> values(cudnnBackendAttributeName_t attribute, int64_t most) const {
    std::vector<V> out(static_cast<size_t>(most));
    int64_t count = 0;
    check(cudnnBackendGetAttribute(get(), attribute, TypeOf<V>::value, most, &count, out.data()),
          where(attribute));
    out.resize(static_cast<size_t>(std::min(count, most)));
    return out;
  }
  // Descriptors of `type` that this one holds, at most `most`.
  std::vector<Descriptor> descriptors(cudnnBackendAttributeName_t attribute,
                                      cudnnBackendDescriptorType_t type, const char* name,
                                      int64_t most) const;

  cudnnBackendDescriptor_t get() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(void* handle) const { cudnnBackendDestroyDescriptor(handle); }
  };
  Descriptor& put(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                  int64_t count, const void* values);
  std::string where(cudnnBackendAttributeName_t attribute) const;

  std::unique_ptr<void, Destroy> handle_;
  const char* name_;
};

cudnnDataType_t type_of(DType dtype);  // f32, bf16

// A tensor of a graph; its address is bound to `id` when the plan runs.
struct Operand {
  int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> dims, strides;
  int64_t alignment = 16;
  bool is_virtual = false;   // between two operations, never in memory
  bool is_by_value = false;  // bound to an address on the host
};

// Operations and what they are made of, until a plan is made.
class Graph {
 public:
  const Descriptor& tensor(const Operand& operand);
  Descriptor& part(cudnnBackendDescriptorType_t type, const char* name);  // kept with the graph
  void add(Descriptor& operation);                                        // finalized here
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

// What to look for in plans.
struct Wish {
  bool exact = false;     // no engine that rounds f32 inputs
  int64_t workspace = 0;  // bytes, at most, where an engine does with so few
};
// Runs the graph that `build` makes by the plan kept for `key` and `wish`, searched for at first;
// by that of the least workspace where there is no memory for more.  Returns false, and warns once,
// where no engine takes the graph.  Errors: an engine's failure, where no other takes the graph;
// OutOfMemory.
bool run(const std::string& key, const Wish& wish, const std::function<Graph()>& build,
         const std::vector<Binding>& bindings);

}  // namespace frugal::ops::cudnn
