# How the sources of the reduce kernels are compiled (src/rank/collectives/kernels/reduce_kernel.h): each with the instruction set that
# it is for, the optimiser on in every build, and arithmetic exactly as written. Included after add_layer(collectives), in
# the same directory. reduce_kernel_test.cc fails where a set that the processor has is not in the build.
include(CheckCXXCompilerFlag)

set(kernel_options -O3 -fno-fast-math -ffp-contract=off)
set(kernel_options_plain "")
set(kernel_options_avx2 "")
set(kernel_options_avx512 "")
set(kernel_options_neon "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(kernel_options_avx2 -mavx2 -mf16c)
  set(kernel_options_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  # zig's clang is told of every feature that a plain processor does not have, and this one brings the wide registers back.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    check_cxx_compiler_flag(-mevex512 FULLDECK_COMPILER_HAS_EVEX512)
    unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
    if(FULLDECK_COMPILER_HAS_EVEX512)
      list(APPEND kernel_options_avx512 -mevex512)
    endif()
  endif()
endif()
foreach(kernel_set plain avx2 avx512 neon)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/rank/collectives/kernels/reduce_kernel_${kernel_set}.cc
                              PROPERTIES COMPILE_OPTIONS "${kernel_options};${kernel_options_${kernel_set}}")
endforeach()
