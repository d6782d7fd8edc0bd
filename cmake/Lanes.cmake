# Compiles cpp/src/montecarlo/kernels.cpp and cpp/src/training/noise_kernels.cpp once per instruction set;
# cpp/src/numerics/instruction_set.cpp chooses at run time.
#
# Only these files get such flags, and they define nothing that other files could share: code for one
# instruction set must never be linked into a function that runs on every machine.
include(CheckCXXCompilerFlag)

function(hockeystick_lanes name)
  set(object hockeystick_lanes_${name})
  add_library(${object} OBJECT cpp/src/montecarlo/kernels.cpp cpp/src/training/noise_kernels.cpp)
  target_compile_features(${object} PRIVATE cxx_std_20)
  set_target_properties(${object} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${object} PRIVATE "${PROJECT_SOURCE_DIR}/cpp/include" "${PROJECT_SOURCE_DIR}/cpp/src")
  hockeystick_flags(${object})
  target_compile_definitions(${object} PRIVATE HOCKEYSTICK_LANES=${name})
  # GCC orders instructions before it assigns registers only if asked to; here that is 8 % faster.
  target_compile_options(${object} PRIVATE ${ARGN}
    $<$<CXX_COMPILER_ID:GNU>:-fschedule-insns -fsched-pressure>)
  target_sources(hockeystick PRIVATE $<TARGET_OBJECTS:${object}>)
endfunction()

hockeystick_lanes(baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  check_cxx_compiler_flag(-mavx2 hockeystick_accepts_avx2)
  check_cxx_compiler_flag("-mavx512f -mavx512dq" hockeystick_accepts_avx512)
endif()
if(hockeystick_accepts_avx2)
  hockeystick_lanes(avx2 -mavx2)
  target_compile_definitions(hockeystick PRIVATE HOCKEYSTICK_HAS_AVX2)
endif()
if(hockeystick_accepts_avx512)
  # GCC's own header passes undefined vectors to masked instructions on purpose.
  hockeystick_lanes(avx512 -mavx512f -mavx512dq $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-uninitialized>)
  target_compile_definitions(hockeystick PRIVATE HOCKEYSTICK_HAS_AVX512)
endif()
