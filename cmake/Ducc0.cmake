# Finds the headers of ducc0, whose FFT is the maintained form of pocketfft. In this order:
#   1. HOCKEYSTICK_DUCC0_DIR, the source distribution (or any directory with ducc0/fft/ in it);
#   2. a system header;
#   3. the copy in a source distribution of hockeystick, which can so be built without a network;
#   4. the pinned source distribution, obtained with pip and checked against its SHA-256.
# Sets hockeystick_ducc0_include and hockeystick_ducc0_origin.
set(ducc0_version 0.42.0)
set(ducc0_sha256 4e11c59b53a43355b053aebb2a62ee16eebeed026575f7d216cf09d437ce52ef)
set(ducc0_header ducc0/fft/fft1d_impl.h)

function(hockeystick_ducc0_from_user)
  foreach(candidate "${HOCKEYSTICK_DUCC0_DIR}/src" "${HOCKEYSTICK_DUCC0_DIR}")
    if(EXISTS "${candidate}/${ducc0_header}")
      set(hockeystick_ducc0_include "${candidate}" PARENT_SCOPE)
      set(hockeystick_ducc0_origin "user directory" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR
    "HOCKEYSTICK_DUCC0_DIR=${HOCKEYSTICK_DUCC0_DIR} holds no ducc0 sources: neither "
    "src/${ducc0_header} nor ${ducc0_header} exists there. Name the directory of an unpacked "
    "ducc0 source distribution, or leave the option empty.")
endfunction()

function(hockeystick_ducc0_from_pip)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/ducc0")
  set(unpacked "${folder}/ducc0-${ducc0_version}/src")
  set(archive "${folder}/ducc0-${ducc0_version}.tar.gz")
  if(NOT EXISTS "${unpacked}/${ducc0_header}")
    find_package(Python COMPONENTS Interpreter)
    # In a requirements file because there pip takes a hash, and checks it before it runs anything
    # from the archive.
    file(WRITE "${folder}/requirements.txt"
      "ducc0==${ducc0_version} --hash=sha256:${ducc0_sha256}\n")
    message(STATUS "Fetching ducc0 ${ducc0_version} with pip")
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -m pip download --quiet --disable-pip-version-check --no-deps
              --no-binary ducc0 --require-hashes -r "${folder}/requirements.txt" -d "${folder}"
      RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(EXISTS "${archive}")
      file(SHA256 "${archive}" found_sha256)
    endif()
    if(NOT result EQUAL 0 OR NOT "${found_sha256}" STREQUAL "${ducc0_sha256}")
      message(FATAL_ERROR
        "The FFT sources (ducc0 ${ducc0_version}) are missing: there is no system header "
        "${ducc0_header}, and pip could not fetch them. Unpack the source distribution of ducc0 "
        "${ducc0_version} and configure with\n"
        "    -DHOCKEYSTICK_DUCC0_DIR=/path/to/ducc0-${ducc0_version}\n"
        "or, when installing with pip, add\n"
        "    --config-settings cmake.define.HOCKEYSTICK_DUCC0_DIR=/path/to/ducc0-${ducc0_version}\n"
        "pip said:\n${output}")
    endif()
    file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${folder}")
  endif()
  set(hockeystick_ducc0_include "${unpacked}" PARENT_SCOPE)
  set(hockeystick_ducc0_origin "version ${ducc0_version} from pip" PARENT_SCOPE)
endfunction()

set(hockeystick_ducc0_copy "${CMAKE_CURRENT_SOURCE_DIR}/third_party")
find_path(HOCKEYSTICK_DUCC0_SYSTEM_INCLUDE ${ducc0_header})
mark_as_advanced(HOCKEYSTICK_DUCC0_SYSTEM_INCLUDE)
if(HOCKEYSTICK_DUCC0_DIR)
  hockeystick_ducc0_from_user()
elseif(HOCKEYSTICK_DUCC0_SYSTEM_INCLUDE)
  set(hockeystick_ducc0_include "${HOCKEYSTICK_DUCC0_SYSTEM_INCLUDE}")
  set(hockeystick_ducc0_origin "system header")
elseif(EXISTS "${hockeystick_ducc0_copy}/${ducc0_header}" AND NOT SKBUILD_STATE STREQUAL "sdist")
  set(hockeystick_ducc0_include "${hockeystick_ducc0_copy}")
  set(hockeystick_ducc0_origin "version ${ducc0_version} of the source distribution")
else()
  hockeystick_ducc0_from_pip()
endif()

# What a source distribution takes along: the header, and those that it includes.
if(SKBUILD_STATE STREQUAL "sdist")
  foreach(header fft/fft1d_impl fft/fft infra/aligned_array infra/error_handling infra/mav infra/misc_utils infra/simd
      infra/threading infra/useful_macros math/cmplx math/unity_roots)
    configure_file("${hockeystick_ducc0_include}/ducc0/${header}.h" "${hockeystick_ducc0_copy}/ducc0/${header}.h" COPYONLY)
  endforeach()
endif()
