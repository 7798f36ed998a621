set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(FRUGAL_CCACHE ccache)
if(FRUGAL_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FRUGAL_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${FRUGAL_CCACHE})
endif()

if(FRUGAL_CUDA AND NOT FRUGAL_CUDA_EMULATOR)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90 100 120)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  enable_language(CUDA)
  # The host's part of fmt is compiled as C++20, where fmt takes nvcc for older.
  set(CMAKE_CUDA_FLAGS
      "${CMAKE_CUDA_FLAGS} --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1")
endif()

# What our own code is compiled with; never exported.
add_library(frugal_flags INTERFACE)
target_compile_options(frugal_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${FRUGAL_WERROR}>>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # Takes any function from a temporary to a reference for one that returns its argument.
  target_compile_options(frugal_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>)
endif()
if(FRUGAL_SANITIZE)
  target_compile_options(frugal_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                                                -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # its flow analysis loses track in instrumented code
    target_compile_options(frugal_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  endif()
  target_link_options(frugal_flags INTERFACE -fsanitize=address,undefined)
endif()
if(FRUGAL_COVERAGE)
  target_compile_options(frugal_flags INTERFACE --coverage)
  target_link_options(frugal_flags INTERFACE --coverage)
endif()

# frugal_library(NAME [PUBLIC libs...] [PRIVATE libs...]): the static library of folder NAME, alias Frugal::NAME,
# installed with its headers. Private header-only dependencies and flags stay in this build.
function(frugal_library name)
  cmake_parse_arguments(ARG "" "" "PUBLIC;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${name}/*.cpp)
  if(FRUGAL_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${name}/*.cu)
    if(FRUGAL_CUDA_EMULATOR)  # as C++; what calls a library of NVIDIA has a stand-in
      list(FILTER cuda_sources EXCLUDE REGEX "/(cublas|cudnn)[^/]*\\.cu$")
      set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
    endif()
    list(APPEND sources ${cuda_sources})
  endif()
  if(NOT sources)
    file(WRITE ${CMAKE_BINARY_DIR}/empty.cpp "")
    set(sources ${CMAKE_BINARY_DIR}/empty.cpp)
  endif()
  set(private frugal_flags ${ARG_PRIVATE})
  list(TRANSFORM private REPLACE "^(frugal_|nlohmann_json::).*$" "$<BUILD_INTERFACE:\\0>")
  add_library(frugal_${name} STATIC ${sources})
  add_library(Frugal::${name} ALIAS frugal_${name})
  set_target_properties(frugal_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(frugal_${name} PUBLIC cxx_std_20)
  # Two roots: a user writes <frugal/core/tensor.h>, our headers write "core/shape.h".
  target_include_directories(frugal_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/frugal>)
  target_link_libraries(frugal_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${private})
  if(FRUGAL_CUDA)
    target_compile_definitions(frugal_${name} PUBLIC FRUGAL_CUDA)
    if(FRUGAL_CUDA_EMULATOR)
      target_link_libraries(frugal_${name} PRIVATE $<BUILD_INTERFACE:frugal_cuda_emulator>)
    endif()
  endif()
  install(TARGETS frugal_${name} EXPORT FrugalTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${name} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/frugal
          FILES_MATCHING PATTERN "*.h" PATTERN "onednn.h" EXCLUDE PATTERN "*-inl.h" EXCLUDE)
endfunction()
