# What needs torch, where there is one (find_torch.cmake):
#   torch_headers      torch's big headers, compiled once for all that is built against torch
#   fulldeck_torch     the c10d backend (src/rank/torch_backend): lib/libfulldeck_torch.so, which shows src/rank/torch_backend/backend.h
#                      and nothing else
if(NOT FULLDECK_HAS_TORCH)
  return()
endif()

# compile_in_batches(TARGET): several sources at once. A file that sees torch takes three seconds before its first own line.
function(compile_in_batches target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  # A type of one file may have members of types that only this file knows; g++ takes each file of a batch for a header.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()

# use_torch_headers(PROGRAM): a program, which links fulldeck_compile_options, is compiled with torch_headers.
function(use_torch_headers program)
  # As the headers were compiled, which g++ insists on: -fPIC, and a level of optimisation; the least will do.
  target_compile_options(${program} PRIVATE -O1 -fPIC)
  target_precompile_headers(${program} REUSE_FROM torch_headers)
  set_target_properties(${program} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
endfunction()

# add_torch_layer(WORLD/NAME [FOLDERS folder...] USES layer... LIBRARIES library... [INCLUDES folder...] [WITH object...])
#
# Compiles the sources of src/WORLD/NAME and of its sub-folders FOLDERS to the objects fulldeck_NAME_objects, and, in builds with
# tests, its tests together with these objects (tests look inside) to NAME_test. WINDOWS: the folders through which the layers that it uses are seen
# (FULLDECK_WINDOWS of layer.cmake); its own is made here, and is the first of the result's FULLDECK_WINDOWS.
# LIBRARIES: what the test is linked with. INCLUDES: further folders of headers, for the objects alone. WITH: objects of
# other layers that the test needs. main.cc is left to add_executable.
function(add_torch_layer path)
  cmake_parse_arguments(PARSE_ARGV 1 LAYER "" "" "FOLDERS;USES;LIBRARIES;INCLUDES;WITH")
  if(LAYER_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_torch_layer(${path}): unexpected '${LAYER_UNPARSED_ARGUMENTS}'.")
  endif()
  cmake_path(GET path FILENAME name)
  layer_windows(${path} windows ${LAYER_USES})
  layer_sources(${path} sources tests ${LAYER_FOLDERS})

  add_library(fulldeck_${name}_objects OBJECT ${sources})
  target_include_directories(fulldeck_${name}_objects PRIVATE ${windows} ${PROJECT_SOURCE_DIR}/include ${LAYER_INCLUDES})
  target_link_libraries(fulldeck_${name}_objects PRIVATE torch_of_python fulldeck_compile_options)
  target_precompile_headers(fulldeck_${name}_objects REUSE_FROM torch_headers)
  compile_in_batches(fulldeck_${name}_objects)
  if(NOT name STREQUAL "torch_backend")  # which is called for every collective
    target_compile_options(fulldeck_${name}_objects PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  endif()
  set_property(TARGET fulldeck_${name}_objects PROPERTY FULLDECK_WINDOWS ${windows})

  if(BUILD_TESTING AND tests)
    add_executable(${name}_test ${tests} $<TARGET_OBJECTS:fulldeck_${name}_objects> ${LAYER_WITH})
    target_include_directories(${name}_test PRIVATE ${windows} ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name}_test PRIVATE torch_of_python ${LAYER_LIBRARIES} fulldeck_compile_options
                                               GTest::gmock GTest::gtest_main)
    use_torch_headers(${name}_test)
    set_target_properties(${name}_test PROPERTIES ENABLE_EXPORTS ON
                                                  BUILD_RPATH ${FULLDECK_TORCH_LIBRARIES}
                                                  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 600)
  endif()
endfunction()

# A header that several files need and that takes seconds belongs here. Compiling these takes 20 s, once; a second set of
# them for another layer would take as long again.
file(WRITE ${CMAKE_BINARY_DIR}/generated/torch_headers.cc "")
add_library(torch_headers OBJECT ${CMAKE_BINARY_DIR}/generated/torch_headers.cc)
target_link_libraries(torch_headers PRIVATE torch_of_python fulldeck_compile_options)
target_precompile_headers(torch_headers PRIVATE <torch/csrc/distributed/c10d/Backend.hpp> <torch/csrc/distributed/c10d/ProcessGroup.hpp>
                          <torch/nn/module.h> <torch/optim/optimizer.h>)

add_torch_layer(rank/torch_backend
                USES collectives base wire
                LIBRARIES fulldeck_collectives fulldeck_wire fulldeck_base
                INCLUDES ${PROJECT_SOURCE_DIR}/src/rank/torch_backend/gloo_declarations)
add_library(fulldeck_torch SHARED $<TARGET_OBJECTS:fulldeck_torch_backend_objects>)
target_include_directories(fulldeck_torch INTERFACE ${CMAKE_BINARY_DIR}/layers/torch_backend)
target_link_libraries(fulldeck_torch PUBLIC torch_of_python
                                     PRIVATE fulldeck_collectives fulldeck_wire fulldeck_base fulldeck_compile_options)
target_link_options(fulldeck_torch PRIVATE -Wl,--exclude-libs,ALL)
# Whoever loads it has torch loaded already, and where that lies is not ours to say.
set_target_properties(fulldeck_torch PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "")
