# Installs the core so that other C++ projects find it with find_package(hockeystick).
include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/hockeystick")

install(DIRECTORY cpp/include/hockeystick DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS hockeystick EXPORT hockeystickTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT hockeystickTargets NAMESPACE hockeystick:: DESTINATION "${package_folder}")

configure_package_config_file(
  cmake/hockeystickConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/hockeystickConfig.cmake"
  INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file(
  "${CMAKE_CURRENT_BINARY_DIR}/hockeystickConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/hockeystickConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/hockeystickConfigVersion.cmake"
  DESTINATION "${package_folder}")
# The library contains the compiled FFT, whose licence asks for its notice to travel along.
install(FILES LICENSE THIRD_PARTY.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
