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
if(FRUGAL_CCACHE MATCHES "^([Oo][Nn]|[Yy][Ee][Ss]|[Tt][Rr][Uu][Ee]|1)$")  # asked for: not the program's name
  unset(FRUGAL_CCACHE CACHE)
  find_program(FRUGAL_CCACHE ccache REQUIRED)
endif()
find_program(FRUGAL_CCACHE ccache)
if(FRUGAL_CCACHE)  # ccache accepts precompiled headers only if it is told to ignore their macros and times
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${FRUGAL_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${FRUGAL_CCACHE})
endif()

# So many files at once need up to 2 GB each (frugal_unity). Ninja starts as many compilers as there are cores.
cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)  # MiB
math(EXPR compilers "(${memory} + 1024) / 2048")
if(compilers LESS 1)
  set(compilers 1)
endif()
set_property(GLOBAL APPEND PROPERTY JOB_POOLS frugal_compilers=${compilers})
set(CMAKE_JOB_POOL_COMPILE frugal_compilers)

# frugal_precompile(TARGET [SHARED group] headers...): what nearly every file includes is parsed once, which saves a
# third of the build. Targets of one group are compiled with the same options, so they share the result; Clang
# compares more options than GCC does, so there each target has its own. The presets dev and tidy set
# CMAKE_DISABLE_PRECOMPILE_HEADERS, so that a file that leans on these headers and does not name them is found.
function(frugal_precompile target)
  cmake_parse_arguments(ARG "" "SHARED" "" ${ARGN})
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()  # REUSE_FROM would make one library wait for another
  endif()
  get_property(first GLOBAL PROPERTY frugal_precompiled_${ARG_SHARED})
  if(ARG_SHARED AND first AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_precompile_headers(${target} REUSE_FROM ${first})
    return()
  endif()
  target_precompile_headers(${target} PRIVATE <algorithm> <functional> <map> <memory> <optional> <string> <vector>
                            <spdlog/fmt/fmt.h> ${ARG_UNPARSED_ARGUMENTS})
  set_property(GLOBAL PROPERTY frugal_precompiled_${ARG_SHARED} ${target})
endfunction()

# frugal_unity(TARGET): most files spend most of their time on headers. 32 of them, compiled as one, take a quarter
# to a half of that time. The files of a target then share one file scope, so two of them cannot give
# one name to two things. CMake compiles files alone that have options or definitions of their own.
option(FRUGAL_UNITY "Compile several files at once where that saves time" ON)
function(frugal_unity target)
  if(FRUGAL_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 32)
  endif()
endfunction()

# frugal_cuda_units(SOURCES): the list of CUDA files becomes one unit for each folder, and those that have definitions of
# their own. nvcc spends four fifths of a file's time on headers. For checks of kernels and for the emulator only: in what
# users run, the compiler's choices about one file do not depend on another.
function(frugal_cuda_units sources)
  if(NOT FRUGAL_UNITY)
    return()
  endif()
  set(units "")
  foreach(source IN LISTS ${sources})
    get_source_file_property(own ${source} COMPILE_DEFINITIONS)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
    get_source_file_property(relative ${name} COMPILE_DEFINITIONS)
    if(own OR relative)
      list(APPEND units ${source})
      continue()
    endif()
    get_filename_component(folder ${name} DIRECTORY)
    string(REPLACE "/" "_" folder ${folder})
    list(APPEND folders ${folder})
    string(APPEND files_${folder} "#include \"${name}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    set(unit ${PROJECT_BINARY_DIR}/units/${folder}.cu)
    file(CONFIGURE OUTPUT ${unit} CONTENT "${files_${folder}}" @ONLY)
    list(APPEND units ${unit})
  endforeach()
  set(${sources} ${units} PARENT_SCOPE)
endfunction()

# Compile options of our own code; never exported.
add_library(frugal_flags INTERFACE)
target_compile_options(frugal_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${FRUGAL_WERROR}>>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # The warning takes any function from a temporary to a reference for one that returns its argument.
  target_compile_options(frugal_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>)
endif()
# Our code asks for FRUGAL_SANITIZED where a sanitizer must see every block of memory.
set(sanitizers "")
if(FRUGAL_SANITIZE STREQUAL "thread")
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # it cannot see how GCC's OpenMP makes threads wait for each other
    message(FATAL_ERROR "FRUGAL_SANITIZE=thread needs clang, got ${CMAKE_CXX_COMPILER_ID}: cmake --preset tsan")
  endif()
  set(sanitizers -fsanitize=thread)
elseif(FRUGAL_SANITIZE STREQUAL "address")
  set(sanitizers -fsanitize=address,undefined,float-cast-overflow)
elseif(FRUGAL_SANITIZE)
  message(FATAL_ERROR "FRUGAL_SANITIZE: expected OFF, address or thread, got '${FRUGAL_SANITIZE}'")
endif()
if(sanitizers)
  target_compile_definitions(frugal_flags INTERFACE FRUGAL_SANITIZED)
  target_compile_options(frugal_flags INTERFACE ${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC's flow analysis gives false warnings in instrumented code
    target_compile_options(frugal_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
    if(NOT FRUGAL_SANITIZE STREQUAL "thread")
      # GCC's shared library of UndefinedBehaviorSanitizer takes no notice of log_path beside that of AddressSanitizer.
      target_link_options(frugal_flags INTERFACE -static-libasan -static-libubsan)
    endif()
  endif()
  target_link_options(frugal_flags INTERFACE ${sanitizers})
endif()
if(FRUGAL_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "FRUGAL_FUZZ needs clang, got ${CMAKE_CXX_COMPILER_ID}: cmake --preset fuzz")
  endif()
  target_compile_options(frugal_flags INTERFACE -fsanitize=fuzzer-no-link)
  # No file is read by what packs activations, and with checks clang 14 takes 15 minutes for one of these files, not one.
  file(GLOB packing ${PROJECT_SOURCE_DIR}/compress/quantize/quantize_*.cpp)
  set_source_files_properties(${packing} PROPERTIES COMPILE_OPTIONS -fno-sanitize=all)
endif()

# frugal_take_from_host_build(NAME SOURCES LIBRARIES): where FRUGAL_HOST_BUILD is set, its library NAME is put before
# LIBRARIES, and there is nothing left to compile. Only for code that is the same with CUDA and without.
set(FRUGAL_EMPTY_SOURCE ${CMAKE_BINARY_DIR}/empty.cpp)
file(WRITE ${FRUGAL_EMPTY_SOURCE} "")
function(frugal_take_from_host_build name sources libraries)
  if(FRUGAL_HOST_BUILD)
    set(${sources} ${FRUGAL_EMPTY_SOURCE} PARENT_SCOPE)
    set(${libraries} ${FRUGAL_HOST_BUILD}/lib/libfrugal_${name}.a ${${libraries}} PARENT_SCOPE)
  endif()
endfunction()

# frugal_library(NAME [LEVEL level] [PUBLIC libs...] [PRIVATE libs...]): the static library of folder NAME, alias
# Frugal::NAME, installed with its headers. Private header-only dependencies and flags stay in this build. LEVEL: how
# much the compiler optimizes in a release; -O1 takes two thirds of the time of -O3, for code without loops over elements,
# and -O2 five sixths, for code with few of them.
function(frugal_library name)
  cmake_parse_arguments(ARG "" "LEVEL" "PUBLIC;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${name}/*.cpp)
  if(FRUGAL_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${name}/*.cu)
    if(FRUGAL_CUDA_EMULATOR)  # files that call a library of NVIDIA have a stand-in
      list(FILTER cuda_sources EXCLUDE REGEX "/(cublas|cudnn)[^/]*\\.cu$")
    endif()
    if(cuda_sources AND (FRUGAL_CUDA_EMULATOR OR FRUGAL_CUDA_CHECK))
      frugal_cuda_units(cuda_sources)
    endif()
    if(FRUGAL_CUDA_EMULATOR)  # compiled as C++
      set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
    endif()
  endif()
  if(name MATCHES "^(autograd|models)$")  # they ask nowhere for FRUGAL_CUDA or kHasCuda
    frugal_take_from_host_build(${name} sources ARG_PUBLIC)
  endif()
  if(NOT sources AND NOT cuda_sources)
    set(sources ${FRUGAL_EMPTY_SOURCE})
  endif()
  set(private frugal_flags ${ARG_PRIVATE})
  list(TRANSFORM private REPLACE "^(frugal_|nlohmann_json::).*$" "$<BUILD_INTERFACE:\\0>")
  add_library(frugal_${name} STATIC ${sources})
  if(cuda_sources)  # compiled alone by the target frugal_cuda_kernels
    add_library(frugal_${name}_cuda OBJECT ${cuda_sources})
    target_compile_features(frugal_${name}_cuda PUBLIC cxx_std_20)
    target_compile_definitions(frugal_${name}_cuda PRIVATE FRUGAL_CUDA)
    target_include_directories(frugal_${name}_cuda PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(frugal_${name}_cuda PRIVATE ${ARG_PUBLIC} ${private})
    if(FRUGAL_CUDA_EMULATOR)
      target_link_libraries(frugal_${name}_cuda PRIVATE frugal_cuda_emulator)
      frugal_precompile(frugal_${name}_cuda)
    endif()
    if(FRUGAL_CUDA_CHECK AND NOT name STREQUAL "core")  # test_cudnn_plans links core
      set_target_properties(frugal_${name}_cuda PROPERTIES CUDA_PTX_COMPILATION ON)
    endif()
    target_sources(frugal_${name} PRIVATE $<TARGET_OBJECTS:frugal_${name}_cuda>)
    if(NOT TARGET frugal_cuda_kernels)
      add_custom_target(frugal_cuda_kernels)
    endif()
    add_dependencies(frugal_cuda_kernels frugal_${name}_cuda)
  endif()
  if(name IN_LIST FRUGAL_COVERAGE)
    # Hardly optimized, so that a line and a branch of the source are one of the program. Threads count together.
    target_compile_options(frugal_${name} PRIVATE -O1 -fno-inline --coverage -fprofile-update=atomic
                           -fprofile-exclude-files=/usr/.*)
    target_link_options(frugal_${name} INTERFACE $<BUILD_INTERFACE:--coverage>)
  elseif("OpenMP::OpenMP_CXX" IN_LIST ARG_PRIVATE)  # the option for OpenMP changes what headers contain
    frugal_precompile(frugal_${name} SHARED openmp)
  else()
    frugal_precompile(frugal_${name} SHARED plain${ARG_LEVEL})
  endif()
  if(ARG_LEVEL)
    target_compile_options(frugal_${name} PRIVATE $<$<CONFIG:Release>:${ARG_LEVEL}>)
  endif()
  frugal_unity(frugal_${name})
  foreach(source IN LISTS sources)  # Highway compiles these once for each instruction set, by their own names
    file(STRINGS ${source} found REGEX "include <hwy/foreach_target.h>" LIMIT_COUNT 1)
    if(found)
      file(STRINGS ${source} sets REGEX "include \"core/vector_targets.h\"" LIMIT_COUNT 1)
      if(NOT sets)
        message(FATAL_ERROR "${source}: expected core/vector_targets.h before <hwy/foreach_target.h>, got none")
      endif()
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
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
  install(TARGETS frugal_${name} EXPORT FrugalTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endfunction()
