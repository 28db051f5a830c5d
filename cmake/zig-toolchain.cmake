# Builds for an old glibc with zig's C++ compiler. Used by scripts/portable, which passes
#   FULLDECK_ZIG_TOOLS    a folder with the programs cc, c++, ar and ranlib, already aimed at the target
#   FULLDECK_ZIG_MACHINE  x86_64 or aarch64
# libc++ is linked in statically, so the result needs nothing but the C library.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FULLDECK_ZIG_TOOLS FULLDECK_ZIG_MACHINE)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${FULLDECK_ZIG_MACHINE})
set(CMAKE_C_COMPILER ${FULLDECK_ZIG_TOOLS}/cc)
set(CMAKE_CXX_COMPILER ${FULLDECK_ZIG_TOOLS}/c++)
set(CMAKE_AR ${FULLDECK_ZIG_TOOLS}/ar)
set(CMAKE_RANLIB ${FULLDECK_ZIG_TOOLS}/ranlib)

# A small file: what is not called is left out. The level of optimisation is the tools' own (see scripts/portable).
set(CMAKE_C_FLAGS_RELEASE "-DNDEBUG" CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELEASE "-DNDEBUG" CACHE STRING "")
set(CMAKE_C_FLAGS_INIT "-ffunction-sections -fdata-sections")
set(CMAKE_CXX_FLAGS_INIT "-ffunction-sections -fdata-sections")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-pie -Wl,--gc-sections")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,--gc-sections")
