# layer_window(WORLD/NAME VARIABLE): makes a folder that holds nothing but NAME, a link to src/WORLD/NAME. The compiler sees a
# layer only through it, so that seeing one layer never shows its siblings.
function(layer_window path variable)
  cmake_path(GET path FILENAME name)
  set(window ${CMAKE_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${window})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/${path} ${window}/${name} SYMBOLIC)
  set(${variable} ${window} PARENT_SCOPE)
endfunction()

# layer_windows(WORLD/NAME VARIABLE [layer...]): the windows of a layer and of these layers, which must be declared above it.
function(layer_windows path variable)
  layer_window(${path} windows)
  foreach(used IN LISTS ARGN)
    if(NOT EXISTS ${CMAKE_BINARY_DIR}/layers/${used} OR NOT (TARGET fulldeck_${used} OR TARGET fulldeck_${used}_objects))
      message(FATAL_ERROR "${path}: USES ${used}, which is not a layer declared above it.")
    endif()
    list(APPEND windows ${CMAKE_BINARY_DIR}/layers/${used})
  endforeach()
  set(${variable} ${windows} PARENT_SCOPE)
endfunction()

# layer_sources(WORLD/NAME SOURCES TESTS [folder...]): the sources and the tests of a layer and of these of its sub-folders.
function(layer_sources path sources_variable tests_variable)
  set(sources)
  set(tests)
  set(at ${PROJECT_SOURCE_DIR}/src/${path})
  foreach(folder IN ITEMS ${at} LISTS ARGN)
    cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${at})
    if(NOT IS_DIRECTORY ${folder})
      message(FATAL_ERROR "${path}: FOLDERS names ${folder}, which does not exist.")
    endif()
    file(GLOB of_folder CONFIGURE_DEPENDS ${folder}/*.cc)
    file(GLOB tests_of_folder CONFIGURE_DEPENDS ${folder}/*_test.cc)
    list(REMOVE_ITEM of_folder ${tests_of_folder} ${folder}/main.cc)
    list(APPEND sources ${of_folder})
    list(APPEND tests ${tests_of_folder})
  endforeach()
  set(${sources_variable} ${sources} PARENT_SCOPE)
  set(${tests_variable} ${tests} PARENT_SCOPE)
endfunction()

# add_layer(WORLD/NAME [FOLDERS folder...] [USES layer...] [HEADERS_OF library...])
#
# A layer is the folder src/WORLD/NAME, with the sub-folders listed in FOLDERS, and is called NAME everywhere else: library,
# namespace, includes. It becomes a static library whose sources may include
#   "NAME/x.h"     its own headers,
#   "OTHER/x.h"    headers of the layers listed in USES, and of no others,
#   <fulldeck/…>   the public headers,
#   and the header-only libraries listed in HEADERS_OF (see header_library.cmake).
# A forbidden include is a file that the compiler cannot find. The edges are exact, not transitive: a layer whose header
# shows another layer's type makes every user list that layer too.
#
# x_test.cc beside x.cc joins the executable NAME_test; main.cc is left to add_executable.
function(add_layer path)
  cmake_parse_arguments(PARSE_ARGV 1 LAYER "" "" "FOLDERS;USES;HEADERS_OF")
  if(LAYER_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_layer(${path}): unexpected '${LAYER_UNPARSED_ARGUMENTS}'. Expected FOLDERS, USES or HEADERS_OF.")
  endif()
  cmake_path(GET path FILENAME name)
  layer_windows(${path} windows ${LAYER_USES})
  layer_sources(${path} sources tests ${LAYER_FOLDERS})
  list(TRANSFORM LAYER_USES PREPEND fulldeck_ OUTPUT_VARIABLE libraries)
  list(TRANSFORM LAYER_HEADERS_OF PREPEND headers_of_ OUTPUT_VARIABLE header_libraries)

  add_library(fulldeck_${name} STATIC ${sources})
  target_include_directories(fulldeck_${name} PRIVATE ${windows} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(fulldeck_${name} PRIVATE ${libraries} ${header_libraries} fulldeck_compile_options)
  set_property(TARGET fulldeck_${name} PROPERTY FULLDECK_WINDOWS ${windows})
  if(name IN_LIST OPTIMIZED_LAYERS)
    target_compile_options(fulldeck_${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3>)
  elseif(name IN_LIST CALLING_LAYERS)
    target_compile_options(fulldeck_${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  endif()

  if(BUILD_TESTING AND tests)
    add_executable(${name}_test ${tests})
    target_include_directories(${name}_test PRIVATE ${windows} ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name}_test PRIVATE fulldeck_${name} ${libraries} ${header_libraries} fulldeck_compile_options
                                               GTest::gmock GTest::gtest_main)
    # Tests are compiled more often than they are run: the big headers once for all layers, and no optimiser.
    if(NOT TARGET test_headers)
      file(WRITE ${CMAKE_BINARY_DIR}/generated/test_headers.cc "")
      add_library(test_headers OBJECT ${CMAKE_BINARY_DIR}/generated/test_headers.cc)
      target_link_libraries(test_headers PRIVATE fulldeck_compile_options GTest::gmock GTest::gtest)
      target_precompile_headers(test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
      # As CMake compiles programs, which is what g++ insists on.
      set_target_properties(test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(test_headers PRIVATE -O0 -fPIE)
    endif()
    target_precompile_headers(${name}_test REUSE_FROM test_headers)
    target_compile_options(${name}_test PRIVATE -O0)
    target_compile_definitions(${name}_test PRIVATE FULLDECK_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures"
                                                    FULLDECK_BUILD_DIR="${CMAKE_BINARY_DIR}")
    set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 600)
  endif()
endfunction()
