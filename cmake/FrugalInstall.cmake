# What `cmake --install` installs: libraries (frugal_library does its own), the public headers, the binary, the ready
# configs, and the package that find_package(Frugal) reads.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Frugal)
set(documents_dir ${CMAKE_INSTALL_DATADIR}/doc/frugal)  # CMAKE_INSTALL_DOCDIR has the project's capital letter

add_library(frugal_everything INTERFACE)
add_library(Frugal::frugal ALIAS frugal_everything)
set_target_properties(frugal_everything PROPERTIES EXPORT_NAME frugal)
target_link_libraries(frugal_everything INTERFACE
  Frugal::core Frugal::ops Frugal::autograd Frugal::compress Frugal::optim Frugal::models Frugal::data Frugal::distributed Frugal::train Frugal::export
  Frugal::run)

install(TARGETS frugal_everything EXPORT FrugalTargets)
install(CODE "
  include(\"${PROJECT_SOURCE_DIR}/cmake/FrugalPublicHeaders.cmake\")
  frugal_public_headers(\"${PROJECT_SOURCE_DIR}\" headers)
  foreach(header IN LISTS headers)
    get_filename_component(folder \"\${header}\" DIRECTORY)
    file(INSTALL \"${PROJECT_SOURCE_DIR}/\${header}\"
         DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/frugal/\${folder}\")
  endforeach()" COMPONENT development)
install(EXPORT FrugalTargets NAMESPACE Frugal:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(cmake/FrugalConfig.cmake.in ${CMAKE_BINARY_DIR}/FrugalConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/FrugalConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/FrugalConfig.cmake ${CMAKE_BINARY_DIR}/FrugalConfigVersion.cmake
              cmake/FindFrugalDnnl.cmake DESTINATION ${package_dir} COMPONENT development)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/frugal COMPONENT program FILES_MATCHING PATTERN "*.json")
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${documents_dir} COMPONENT program)
install(DIRECTORY docs/ DESTINATION ${documents_dir}/docs COMPONENT program)
if(TARGET frugal)
  install(TARGETS frugal RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
