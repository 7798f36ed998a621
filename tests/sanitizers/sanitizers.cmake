# How every test runs in a build with FRUGAL_SANITIZE: with these options and suppressions, and more time. Reports go to
# files of build/PRESET/reports, because a test that expects a program to fail would take the report for its failure, and
# the test `reports` fails if there is one. It runs last, whatever ctest was asked for.
set(here ${CMAKE_CURRENT_LIST_DIR})
set(folder ${PROJECT_BINARY_DIR}/reports)
set(common "log_path=${folder}/report:print_suppressions=1")
if(FRUGAL_SANITIZE STREQUAL "address")
  string(JOIN ":" address ${common} detect_leaks=1 detect_stack_use_after_return=1 strict_string_checks=1
         check_initialization_order=1 strict_init_order=1)
  set(environment "ASAN_OPTIONS=set:${address}"
      "LSAN_OPTIONS=set:${common}:suppressions=${here}/leak.txt"
      "UBSAN_OPTIONS=set:${common}:print_stacktrace=1:halt_on_error=1")
else()
  # Archer tells the sanitizer how the threads of clang's OpenMP wait for each other. Libraries that are not compiled with
  # the sanitizer do not tell it how their threads do, so what they read and write is left out.
  get_filename_component(openmp "${OpenMP_omp_LIBRARY}" DIRECTORY)
  find_library(FRUGAL_ARCHER archer HINTS ${openmp} REQUIRED)
  set(environment "OMP_TOOL_LIBRARIES=set:${FRUGAL_ARCHER}"
      "TSAN_OPTIONS=set:${common}:suppressions=${here}/thread.txt:ignore_noninstrumented_modules=1:second_deadlock_stack=1:\
history_size=4:die_after_fork=0")
endif()
set(FRUGAL_SANITIZED_ENVIRONMENT ${environment})
function(frugal_sanitized_tests)  # all tests of the folder that calls it
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    get_test_property(${test} TIMEOUT seconds)
    if(NOT seconds)
      set(seconds 1500)  # ctest's own
    endif()
    math(EXPR seconds "${seconds} * 5")
    set_tests_properties(${test} PROPERTIES TIMEOUT ${seconds} FIXTURES_REQUIRED reports
                         ENVIRONMENT_MODIFICATION "${FRUGAL_SANITIZED_ENVIRONMENT}")
  endforeach()
endfunction()
