# Asks cuDNN which engines it has on an H100 for the graphs that we give it. That needs no GPU: the toolkit's stand-in for
# the driver's library is enough, under the driver's name.
find_library(FRUGAL_DRIVER_STUB cuda PATHS ${CUDAToolkit_LIBRARY_DIR}/stubs ${CUDAToolkit_TARGET_DIR}/lib/stubs
             NO_DEFAULT_PATH)
if(FRUGAL_DRIVER_STUB)
  set(driver ${CMAKE_CURRENT_BINARY_DIR}/driver)
  file(MAKE_DIRECTORY ${driver})
  file(CREATE_LINK ${FRUGAL_DRIVER_STUB} ${driver}/libcuda.so.1 SYMBOLIC)
  # Only what makes graphs, so that the test can be built without all kernels.
  set(of_graphs cuda/cudnn_graph.cu cuda/cudnn_conv.cu cuda/cudnn_attention.cu autotune.cpp precision.cpp)
  list(TRANSFORM of_graphs PREPEND ${PROJECT_SOURCE_DIR}/ops/)
  add_executable(test_cudnn_plans ${CMAKE_CURRENT_SOURCE_DIR}/cudnn_plans/plans_test.cpp ${of_graphs})
  target_compile_definitions(test_cudnn_plans PRIVATE FRUGAL_CUDA FRUGAL_CUDNN_LIBRARY_DIR="${cudnn_dir}")
  target_include_directories(test_cudnn_plans PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${FRUGAL_CUDNN_DIR})
  target_link_libraries(test_cudnn_plans PRIVATE frugal_test_main Frugal::core)
  add_test(NAME cudnn_plans COMMAND test_cudnn_plans)
  set_tests_properties(cudnn_plans PROPERTIES ENVIRONMENT "LD_LIBRARY_PATH=${driver}"
                       SKIP_REGULAR_EXPRESSION "left out: ")
endif()
