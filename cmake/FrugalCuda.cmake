# Decides whether the CUDA backend is built, with which tools, and for which GPUs.

# What it needs: nvcc 12.4 or newer, and cuDNN.
find_package(CUDAToolkit 12.4 QUIET)
find_path(FRUGAL_CUDNN_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(FRUGAL_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
set(found OFF)
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND FRUGAL_CUDNN_DIR AND FRUGAL_CUDNN_LIBRARY)
  set(found ON)
endif()
option(FRUGAL_CUDA "Build the CUDA backend; by default where nvcc and cuDNN are found" ${found})
option(FRUGAL_CUDA_CHECK "frugal_cuda_kernels compiles kernels to PTX alone: their errors show in half the time, and nothing can be linked" OFF)
option(FRUGAL_CUDA_EMULATOR "Run the CUDA kernels on the CPU, for tests" OFF)
set(FRUGAL_HOST_BUILD "" CACHE PATH "A finished build of this tree without CUDA, such as build/release. The emulator's build \
takes from it the libraries whose code is the same with CUDA and without")

set(FRUGAL_CUDART)
set(FRUGAL_CUDA_LIBRARIES)
if(FRUGAL_CUDA_EMULATOR)
  set_source_files_properties(distributed/nccl.cu PROPERTIES COMPILE_DEFINITIONS FRUGAL_NCCL)
endif()
if(NOT FRUGAL_CUDA OR FRUGAL_CUDA_EMULATOR)
  return()
endif()
if(NOT found)
  message(FATAL_ERROR "FRUGAL_CUDA is ON, but not all that it needs was found: nvcc 12.4 or newer "
                      "(${CUDAToolkit_NVCC_EXECUTABLE}, version ${CUDAToolkit_VERSION}), cudnn.h "
                      "(${FRUGAL_CUDNN_DIR}), libcudnn (${FRUGAL_CUDNN_LIBRARY})")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND CMAKE_CUDA_ARCHITECTURES 100 120)
  endif()
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc supports C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
# fmt takes nvcc for a compiler of an older C++ standard.
string(APPEND CMAKE_CUDA_FLAGS " --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1")
if(FRUGAL_CUDA_CHECK)  # hardly optimized; nvcc 13 can leave out more than -G does, and takes half of its time
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13)
    string(APPEND CMAKE_CUDA_FLAGS " --Ofast-compile=max")
  else()
    string(APPEND CMAKE_CUDA_FLAGS " -G")
  endif()
endif()
set(FRUGAL_CUDART CUDA::cudart_static)
# cuBLASLt and cuDNN are opened when they are first needed, so a binary starts where they are missing. They are looked
# for in the system's folders, then where they were when this was built.
set(FRUGAL_CUDA_LIBRARIES CUDA::cudart_static)
get_filename_component(cudnn_dir "${FRUGAL_CUDNN_LIBRARY}" DIRECTORY)
set_source_files_properties(ops/cuda/cublas.cu ops/cuda/cudnn_graph.cu ops/cuda/cudnn_conv.cu
                            ops/cuda/cudnn_attention.cu PROPERTIES COMPILE_DEFINITIONS
                            "FRUGAL_CUDA_LIBRARY_DIR=\"${CUDAToolkit_LIBRARY_DIR}\";FRUGAL_CUDNN_LIBRARY_DIR=\"${cudnn_dir}\"")
# Several kernels compute the functions of one element (ops/dense/functors.h), and their bits must be equal. So nvcc may
# not choose which products and sums of these become one; where one is wanted, it is written (multiply_add()).
set_source_files_properties(ops/dense/elementwise.cu compress/quantize/fused_map.cu compress/quantize/fused_pack.cu
                            PROPERTIES COMPILE_OPTIONS -fmad=false)
# Optional: several processes exchange CUDA tensors through NCCL, which is opened as the two above are. Only its header is
# needed here.
find_path(FRUGAL_NCCL_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(FRUGAL_NCCL_DIR)
  set_source_files_properties(distributed/nccl.cu PROPERTIES
    COMPILE_DEFINITIONS "FRUGAL_NCCL;FRUGAL_CUDA_LIBRARY_DIR=\"${CUDAToolkit_LIBRARY_DIR}\""
    INCLUDE_DIRECTORIES "${FRUGAL_NCCL_DIR}")
endif()
