# Ranks whose tensors lie on GPUs. On the emulator each has a GPU of its own and NCCL's stand-in, or there is no NCCL, or
# ranks share a GPU; FRUGAL_TEST_NCCL says whether NCCL must then serve them. On real GPUs the tests take what is there.
set(several_on_cuda)
function(frugal_test_ranks name ranks environment)
  add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:test_cuda_ranks>)
  set_tests_properties(${name} PROPERTIES PROCESSORS 2 TIMEOUT 900 ENVIRONMENT "${ranks_environment};${environment}")
  set(several_on_cuda ${several_on_cuda} ${name} PARENT_SCOPE)
endfunction()

set(with_nccl)
if(FRUGAL_CUDA_EMULATOR)
  set_target_properties(test_cuda_ranks PROPERTIES ENABLE_EXPORTS ON)
  add_dependencies(test_cuda_ranks frugal_emulated_nccl)
  set(with_nccl "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:frugal_emulated_nccl>;FRUGAL_EMULATOR_DEVICES=3;FRUGAL_TEST_NCCL=1")
  set_tests_properties(cuda_ranks PROPERTIES ENVIRONMENT "${with_nccl};OMP_NUM_THREADS=1")
endif()
if(MPI_CXX_FOUND AND MPIEXEC_EXECUTABLE)
  frugal_test_ranks(cuda_ranks_2 2 "${with_nccl}")
  frugal_test_ranks(cuda_ranks_3 3 "${with_nccl}")
  if(FRUGAL_CUDA_EMULATOR)
    frugal_test_ranks(cuda_ranks_fence 2 "${with_nccl};FRUGAL_EMULATOR=fence")
    frugal_test_ranks(cuda_ranks_host 2 "FRUGAL_TEST_NCCL=0")
    frugal_test_ranks(cuda_ranks_one_gpu 3
                      "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:frugal_emulated_nccl>;FRUGAL_EMULATOR_DEVICES=2;FRUGAL_TEST_NCCL=0")
    add_test(NAME cuda_ranks_failures COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/failures_test.sh
             ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} $<TARGET_FILE:test_cuda_ranks>)
    set_tests_properties(cuda_ranks_failures PROPERTIES PROCESSORS 2 TIMEOUT 900 ENVIRONMENT
                         "${ranks_environment};${with_nccl}")
    list(APPEND several_on_cuda cuda_ranks_failures)
  endif()
  list(APPEND gpu_tests ${several_on_cuda})
endif()
