# Finds oneDNN as target DNNL::dnnl. Its own dnnl-config.cmake requires the OpenCL headers and
# library wherever it was built with GPU support, as Debian does; Frugal uses its CPU engine only.
find_path(FRUGAL_DNNL_INCLUDE_DIR dnnl.hpp)
find_library(FRUGAL_DNNL_LIBRARY dnnl)

set(FrugalDnnl_VERSION "")
if(EXISTS "${FRUGAL_DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
  file(STRINGS "${FRUGAL_DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" lines
       REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  list(JOIN numbers "." FrugalDnnl_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(FrugalDnnl
  REQUIRED_VARS FRUGAL_DNNL_LIBRARY FRUGAL_DNNL_INCLUDE_DIR VERSION_VAR FrugalDnnl_VERSION)
mark_as_advanced(FRUGAL_DNNL_INCLUDE_DIR FRUGAL_DNNL_LIBRARY)

if(FrugalDnnl_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES
    IMPORTED_LOCATION "${FRUGAL_DNNL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${FRUGAL_DNNL_INCLUDE_DIR}")
endif()
