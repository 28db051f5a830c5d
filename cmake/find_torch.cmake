# Finds the torch of FULLDECK_PYTHON, asking that interpreter itself (python/build_backend/torch_facts.py):
#   FULLDECK_HAS_TORCH        whether there is one that can be built against; if not, a line says why, and the rest is not set
#   FULLDECK_TORCH_VERSION    "2.13.0+cpu"
#   FULLDECK_TORCH_LIBRARIES  the folder of its libraries
#   torch_of_python           headers and libraries of torch's C++ side, as an INTERFACE library
#   extension_of_torch        the same and those of Python and of torch's Python side: for an extension
#   FULLDECK_CUDA_INCLUDES    where the headers of CUDA and NCCL are; empty: torch has no CUDA, or they are not there
#   FULLDECK_PYTHON_CACHE_TAG, FULLDECK_PYTHON_EXTENSION_SUFFIX, FULLDECK_TORCH_CXX11_ABI
# In builds whose code must not meet torch's (sanitizers, fuzzers, other machines) there is none. find_package(Torch) is not
# used: it wants a CUDA toolkit wherever torch has CUDA, and headers are all that is needed.
set(FULLDECK_TORCH AUTO CACHE STRING "Build what needs torch: AUTO (where the Python has one), ON (an error where not) or OFF")
set(FULLDECK_PYTHON "" CACHE FILEPATH "The Python whose torch is built against")
set(FULLDECK_HAS_TORCH OFF)

# Why there is none. Called last: the rest of the file is left out by its caller.
macro(no_torch why)
  if(FULLDECK_TORCH STREQUAL "ON")
    message(FATAL_ERROR "FULLDECK_TORCH is ON, and nothing can be built against torch: ${why}.")
  endif()
  message(STATUS "No c10d backend in this build: ${why}.")
  return()
endmacro()

# list_of_json(VARIABLE TEXT NAME): the array NAME of the object TEXT.
function(list_of_json variable text name)
  set(items)
  string(JSON count LENGTH "${text}" ${name})
  while(count GREATER 0)
    math(EXPR count "${count} - 1")
    string(JSON item GET "${text}" ${name} ${count})
    list(PREPEND items ${item})
  endwhile()
  set(${variable} ${items} PARENT_SCOPE)
endfunction()

function(find_torch_of_python)
  if(FULLDECK_TORCH STREQUAL "OFF")
    no_torch("FULLDECK_TORCH is OFF")
  elseif(FULLDECK_SANITIZE OR FULLDECK_FUZZ)
    no_torch("torch is not built with sanitizers")
  elseif(CMAKE_CROSSCOMPILING OR NOT FULLDECK_PYTHON)
    no_torch("there is no FULLDECK_PYTHON whose torch it could be built against")
  endif()
  # Torch brings the shared C++ library into the process. A program with a second one linked into it crashes in streams.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so OUTPUT_VARIABLE cxx_library
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(cxx_library STREQUAL "libstdc++.so")
    no_torch("${CMAKE_CXX_COMPILER} has no shared libstdc++, which programs with torch need; name another compiler in CXX")
  endif()
  execute_process(COMMAND ${FULLDECK_PYTHON} ${PROJECT_SOURCE_DIR}/python/build_backend/torch_facts.py
                  OUTPUT_VARIABLE answer ERROR_VARIABLE problem RESULT_VARIABLE code TIMEOUT 300)
  string(REGEX MATCH "[^\n]+\n*$" answer "${answer}")
  string(JSON version ERROR_VARIABLE malformed GET "${answer}" torch)
  if(NOT code EQUAL 0 OR malformed)
    message(FATAL_ERROR "${FULLDECK_PYTHON} does not tell about its torch (${code}): ${malformed}\n${problem}")
  endif()
  string(JSON failure GET "${answer}" failure)
  string(JSON folder GET "${answer}" torch_folder)
  string(JSON new_abi GET "${answer}" cxx11_abi)
  if(NOT version)
    no_torch("${FULLDECK_PYTHON} has no torch ${failure}")
  elseif(version VERSION_LESS 2.6)
    no_torch("torch ${version} is too old, 2.6 is the oldest")
  elseif(NOT new_abi AND NOT FULLDECK_PACKAGE_ONLY)
    no_torch("torch ${version} has the old C++ ABI (PyPI's wheels before 2.7), for which only pip install . builds")
  endif()
  message(STATUS "The c10d backend is built against torch ${version} (${folder}).")
  # Another torch in its place is another build.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/version.py)

  add_library(torch_of_python INTERFACE)
  target_include_directories(torch_of_python SYSTEM INTERFACE ${folder}/include ${folder}/include/torch/csrc/api/include)
  target_link_libraries(torch_of_python INTERFACE ${folder}/lib/libtorch_cpu.so ${folder}/lib/libc10.so)
  # Torch's own libraries name others that only its GPU builds bring; they are the loader's business, not ours. What an
  # extension calls of Python's is in the interpreter, which is no library.
  set(is_extension $<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>)
  target_link_options(torch_of_python INTERFACE $<$<NOT:${is_extension}>:-Wl,--unresolved-symbols=ignore-in-shared-libs>)

  string(JSON python_headers GET "${answer}" include)
  add_library(extension_of_torch INTERFACE)
  target_include_directories(extension_of_torch SYSTEM INTERFACE ${python_headers})
  target_link_libraries(extension_of_torch INTERFACE torch_of_python ${folder}/lib/libtorch_python.so)
  list_of_json(definitions "${answer}" definitions)
  target_compile_definitions(extension_of_torch INTERFACE ${definitions})

  list_of_json(cuda_includes "${answer}" cuda_includes)
  set(FULLDECK_CUDA_INCLUDES ${cuda_includes} PARENT_SCOPE)

  string(JSON cache_tag GET "${answer}" cache_tag)
  string(JSON extension_suffix GET "${answer}" extension_suffix)
  set(FULLDECK_PYTHON_CACHE_TAG ${cache_tag} PARENT_SCOPE)
  set(FULLDECK_PYTHON_EXTENSION_SUFFIX ${extension_suffix} PARENT_SCOPE)
  set(FULLDECK_TORCH_CXX11_ABI ${new_abi} PARENT_SCOPE)
  set(FULLDECK_TORCH_VERSION ${version} PARENT_SCOPE)
  set(FULLDECK_TORCH_LIBRARIES ${folder}/lib PARENT_SCOPE)
  set(FULLDECK_HAS_TORCH ON PARENT_SCOPE)
endfunction()
find_torch_of_python()

# Of everything that ends in one library with torch's strings.
if(FULLDECK_HAS_TORCH AND NOT FULLDECK_TORCH_CXX11_ABI)
  add_compile_definitions(_GLIBCXX_USE_CXX11_ABI=0)
endif()
