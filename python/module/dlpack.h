// The structs of DLPack 0.x, by which array libraries hand each other memory. Their layout is the
// contract between the libraries, so it is fixed.
// Ref: https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once
#include <cstdint>

namespace frugal::python::dlpack {

inline constexpr const char* kFresh = "dltensor";  // the name of a capsule that nobody took yet
inline constexpr const char* kTaken = "used_dltensor";  // who takes a capsule gives it this name

enum Kind : int32_t { cpu = 1, cuda = 2 };
enum Code : uint8_t { integer = 0, unsigned_integer = 1, floating = 2, bfloat = 4, boolean = 6 };

struct Place {
  int32_t kind;
  int32_t index;
};
struct Type {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct View {
  void* data;
  Place place;
  int32_t axes;
  Type type;
  int64_t* shape;
  int64_t* strides;  // in elements; null: contiguous
  uint64_t byte_offset;
};
struct Managed {
  View view;
  void* context;
  void (*deleter)(Managed*);
};

}  // namespace frugal::python::dlpack
