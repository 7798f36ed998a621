# Every library Frugal stands on; docs/guide/install.md says what each is for.
find_package(spdlog REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(FrugalDnnl 2.6 REQUIRED)
find_package(hwy CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc)
find_path(FRUGAL_RANDOM123_DIR Random123/philox.h REQUIRED)
add_library(frugal_random123 INTERFACE)
target_include_directories(frugal_random123 SYSTEM INTERFACE ${FRUGAL_RANDOM123_DIR})
# frugal_plain_library(NAME HEADER): a C library without a CMake file of its own, to link as frugal_NAME and NAME. The
# first stays in this build, so programs that use the installed package need the library alone.
function(frugal_plain_library name header)
  string(TOUPPER ${name} upper)
  find_path(FRUGAL_${upper}_DIR ${header} REQUIRED)
  find_library(FRUGAL_${upper}_LIBRARY ${name} REQUIRED)
  add_library(frugal_${name} INTERFACE)
  target_include_directories(frugal_${name} SYSTEM INTERFACE ${FRUGAL_${upper}_DIR})
endfunction()
find_package(Eigen3 3.4 REQUIRED NO_MODULE)  # matrix products of the f64 reference
add_library(frugal_eigen INTERFACE)
target_link_libraries(frugal_eigen INTERFACE Eigen3::Eigen)
target_compile_definitions(frugal_eigen INTERFACE EIGEN_DONT_PARALLELIZE)  # bits must not depend on threads
find_package(LibArchive REQUIRED)            # tar and zip archives, so also .npz files
frugal_plain_library(nettle nettle/sha2.h)   # SHA-256 of downloads and configs
frugal_plain_library(metis metis.h)          # clusters of graphs
# Optional: a codec of error-bounded packing. (Debian's CMake file asks for programs that are not there.)
find_path(FRUGAL_ZFP_DIR zfp.h)
find_library(FRUGAL_ZFP_LIBRARY zfp)
set(FRUGAL_ZFP)
if(FRUGAL_ZFP_DIR AND FRUGAL_ZFP_LIBRARY)
  add_library(frugal_zfp INTERFACE)
  target_include_directories(frugal_zfp SYSTEM INTERFACE ${FRUGAL_ZFP_DIR})
  set(FRUGAL_ZFP frugal_zfp zfp)
  set_source_files_properties(compress/bounded/zfp_codec.cpp PROPERTIES COMPILE_DEFINITIONS FRUGAL_ZFP)
endif()
# Optional: `frugal data fetch` downloads through it.
find_package(CURL 7.85)
set(FRUGAL_FETCH)
if(CURL_FOUND)
  set(FRUGAL_FETCH CURL::libcurl)
  set_source_files_properties(data/fetch/fetch.cpp PROPERTIES COMPILE_DEFINITIONS FRUGAL_CURL)
endif()
# Optional: pictures from files (data/image/picture.h): TurboJPEG decodes JPEG at a part of its size, libexif
# tells how it must be turned.
find_path(FRUGAL_TURBOJPEG_DIR turbojpeg.h)
find_library(FRUGAL_TURBOJPEG_LIBRARY turbojpeg)
find_path(FRUGAL_WEBP_DIR webp/decode.h)
find_library(FRUGAL_WEBP_LIBRARY webp)
find_path(FRUGAL_EXIF_DIR libexif/exif-data.h)
find_library(FRUGAL_EXIF_LIBRARY exif)
find_path(FRUGAL_PNG_DIR png.h)
find_library(FRUGAL_PNG_LIBRARY png)
set(FRUGAL_PICTURES)
if(FRUGAL_PNG_DIR AND FRUGAL_PNG_LIBRARY AND FRUGAL_TURBOJPEG_DIR AND FRUGAL_TURBOJPEG_LIBRARY AND FRUGAL_WEBP_DIR AND FRUGAL_WEBP_LIBRARY
   AND FRUGAL_EXIF_DIR AND FRUGAL_EXIF_LIBRARY)
  set(FRUGAL_PICTURES turbojpeg webp exif png)
  set_source_files_properties(data/image/picture.cpp PROPERTIES COMPILE_DEFINITIONS FRUGAL_PICTURES)
endif()
if(FRUGAL_TESTS)
  find_package(doctest REQUIRED)
endif()
