# Installs the program, the libraries, their headers and the CMake package `shardsim`.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY SHARDSIM_LIBRARIES)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/shardsim)

install(TARGETS shardsim RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(SHARDSIM_WITH_CUDA)
  install(TARGETS shardsim_cuda_module LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/shardsim)
endif()
install(TARGETS ${libraries} EXPORT shardsimTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY sim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardsim
  FILES_MATCHING PATTERN "*.h" PATTERN cli EXCLUDE)
install(DIRECTORY scenarios DESTINATION ${CMAKE_INSTALL_DATADIR}/shardsim)
install(EXPORT shardsimTargets NAMESPACE shardsim:: DESTINATION ${package_dir})

configure_package_config_file(cmake/shardsimConfig.cmake.in shardsimConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(shardsimConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/shardsimConfig.cmake
  ${PROJECT_BINARY_DIR}/shardsimConfigVersion.cmake
  DESTINATION ${package_dir})
