# Installs the core so that other projects find it with find_package(hockeystick): into a prefix, or into the
# Python package (see hockeystick.get_cmake_dir()), where every path is relative to the package's folder.
include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/hockeystick")

set(libraries hockeystick)
if(HOCKEYSTICK_BUILD_C)
  set_target_properties(hockeystick_c PROPERTIES EXPORT_NAME c)
  list(APPEND libraries hockeystick_c)
endif()
install(DIRECTORY cpp/include/hockeystick DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT embedding)
install(TARGETS ${libraries} EXPORT hockeystickTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT embedding
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT embedding
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT embedding)
install(EXPORT hockeystickTargets NAMESPACE hockeystick:: DESTINATION "${package_folder}" COMPONENT embedding)

configure_package_config_file(
  cmake/hockeystickConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/hockeystickConfig.cmake"
  INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file(
  "${CMAKE_CURRENT_BINARY_DIR}/hockeystickConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/hockeystickConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/hockeystickConfigVersion.cmake"
  DESTINATION "${package_folder}" COMPONENT embedding)
# The library contains the compiled FFT, whose licence asks for its notice to travel along. A wheel has both
# files among its metadata.
install(FILES LICENSE THIRD_PARTY.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT documentation)
