# Compiler flags of every target of this project.
#
# -ffp-contract=off: whether a multiply and an add are fused must not depend on the machine, because
# results must not. For the same reason there is no -ffast-math and no -march=native.
function(hockeystick_flags target)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  if(MSVC)
    target_compile_options(${target} PRIVATE /W4 /fp:precise $<$<CXX_COMPILER_ID:Clang>:/clang:-ffp-contract=off>
      $<$<BOOL:${HOCKEYSTICK_WERROR}>:/WX>)
    return()
  endif()
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    -ffp-contract=off
    # GCC's warnings leave changes of sign and elided braces out, and both compilers are asked for the same.
    $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-sign-conversion;-Wno-missing-braces>
    $<$<CONFIG:Release>:-O3>
    $<$<BOOL:${HOCKEYSTICK_WERROR}>:-Werror>)
  if(DEFINED SKBUILD)
    # A wheel is the same bytes wherever it is built: no message names the folder of a header.
    foreach(folder "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}" "${hockeystick_ducc0_include}")
      target_compile_options(${target} PRIVATE "-ffile-prefix-map=${folder}=.")
    endforeach()
  endif()
  if(HOCKEYSTICK_SANITIZE)
    # Without a check of every sum of a pointer and an index, which takes a third of the time: what such a
    # pointer reads, AddressSanitizer checks.
    set(sanitize -fsanitize=address,undefined -fno-sanitize=pointer-overflow -fno-sanitize-recover=all
      -fno-omit-frame-pointer)
    # -O1: sanitized code takes several times longer to compile at -O3.
    target_compile_options(${target} PRIVATE ${sanitize} -O1 -g1)
    # PUBLIC: whoever links the static library needs the sanitizer's run-time.
    target_link_options(${target} PUBLIC ${sanitize})
  endif()
endfunction()
