# `cpack` in a build folder makes Debian packages for the system that it runs on: `frugal` (the program, configurations
# and pages), `libfrugal-dev` (libraries and headers) and `python3-frugal`. dpkg-shlibdeps finds which packages of
# libraries the programs need, so the packages fit the release of Debian that they were made on.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME frugal)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The authors of Frugal <frugal@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

# What the archives of libraries are linked with.
set(needed libdnnl-dev libhwy-dev libspdlog-dev zlib1g-dev libicu-dev libarchive-dev nettle-dev libmetis-dev)
foreach(optional FRUGAL_ZFP:libzfp-dev FRUGAL_FETCH:libcurl4-openssl-dev FRUGAL_XML:libpugixml-dev
                 FRUGAL_PICTURES:libturbojpeg0-dev FRUGAL_PICTURES:libpng-dev FRUGAL_PICTURES:libwebp-dev
                 FRUGAL_PICTURES:libexif-dev FRUGAL_ONNX:libonnx-dev FRUGAL_ONNX:libprotobuf-dev
                 FRUGAL_MPI_LIBRARIES:libopenmpi-dev)
  string(REGEX MATCH "^([^:]*):(.*)$" found ${optional})
  if(${CMAKE_MATCH_1})
    list(APPEND needed ${CMAKE_MATCH_2})
  endif()
endforeach()
list(JOIN needed ", " development_needs)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME frugal)
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "${PROJECT_DESCRIPTION}
 The program, ready configurations and the pages.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "ca-certificates")  # `frugal data fetch`
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libfrugal-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)  # its libraries are archives
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${development_needs}")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "${PROJECT_DESCRIPTION} (development files)
 Libraries, headers and the package of CMake.")
if(TARGET frugal_python)
  list(APPEND CPACK_COMPONENTS_ALL python)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-frugal)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "${FRUGAL_PYTHON_NEEDS}, python3-numpy")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/postinst
                                                ${PROJECT_SOURCE_DIR}/cmake/debian/prerm)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-torch, python3-matplotlib")
  set(CPACK_DEBIAN_PYTHON_DESCRIPTION "${PROJECT_DESCRIPTION} (Python)
 Training from Python, and frugal.torch for models of PyTorch.")
endif()
include(CPack)
