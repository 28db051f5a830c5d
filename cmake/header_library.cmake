# add_header_library(NAME HEADER [DEFINES definition...])
#
# Makes headers_of_NAME: a header-only library of the distribution, reached through a folder that holds nothing else.
# A cross build for another libc can then see these headers without seeing the rest of the host's /usr/include.
function(add_header_library name header)
  cmake_parse_arguments(PARSE_ARGV 2 LIBRARY "" "" "DEFINES")
  find_path(FULLDECK_${name}_DIR ${header} PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH)
  if(NOT FULLDECK_${name}_DIR)
    message(FATAL_ERROR "The headers of ${name} (${header}) are not on this machine. Run scripts/setup.")
  endif()
  string(REGEX MATCH "^[^/]+" top ${header})
  set(window ${CMAKE_BINARY_DIR}/headers/${name})
  file(MAKE_DIRECTORY ${window})
  file(CREATE_LINK ${FULLDECK_${name}_DIR}/${top} ${window}/${top} SYMBOLIC)
  add_library(headers_of_${name} INTERFACE)
  target_include_directories(headers_of_${name} SYSTEM INTERFACE ${window})
  target_compile_definitions(headers_of_${name} INTERFACE ${LIBRARY_DEFINES})
endfunction()
