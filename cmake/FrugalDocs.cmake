# The target `docs`: reference pages of the public headers, in docs/reference of the build folder, where doxygen is
# installed. A warning is an error, so that comments stay in step with what they describe.
find_package(Doxygen QUIET)
if(NOT DOXYGEN_FOUND)
  return()
endif()
file(STRINGS frugal.h includes REGEX "^#include \"")  # the list of the public headers
string(REGEX REPLACE "#include \"([^\"]+)\"" "${PROJECT_SOURCE_DIR}/\\1" public_headers "${includes}")
set(DOXYGEN_PROJECT_NAME Frugal)
set(DOXYGEN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/docs/reference)
set(DOXYGEN_GENERATE_LATEX NO)
set(DOXYGEN_STRIP_FROM_PATH ${PROJECT_SOURCE_DIR})
set(DOXYGEN_STRIP_FROM_INC_PATH ${PROJECT_SOURCE_DIR})
set(DOXYGEN_INPUT_FILTER "sed -E -f ${PROJECT_SOURCE_DIR}/cmake/doxygen.sed")  # // is what our headers write
set(DOXYGEN_EXTRACT_ALL YES)
set(DOXYGEN_SORT_MEMBER_DOCS NO)
set(DOXYGEN_MARKDOWN_SUPPORT NO)  # [shape] is no link and <kernel> no tag
set(DOXYGEN_AUTOLINK_SUPPORT NO)
set(DOXYGEN_MACRO_EXPANSION YES)
set(DOXYGEN_PREDEFINED FRUGAL_HD=)
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_WARN_IF_UNDOCUMENTED NO)
set(DOXYGEN_WARN_IF_DOC_ERROR YES)
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
doxygen_add_docs(docs ${PROJECT_SOURCE_DIR}/frugal.h ${public_headers} COMMENT "Reference pages of the public headers")
if(FRUGAL_TESTS)
  add_test(NAME docs COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target docs)
endif()
