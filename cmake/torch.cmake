# The c10d backend (src/torch_runtime), where there is a torch (find_torch.cmake):
#   fulldeck_torch     lib/libfulldeck_torch.so, which shows src/torch_runtime/backend.h and nothing else
if(FULLDECK_HAS_TORCH)
  set(torch_window ${CMAKE_BINARY_DIR}/layers/torch_runtime)
  file(MAKE_DIRECTORY ${torch_window})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/torch_runtime ${torch_window}/torch_runtime SYMBOLIC)
  get_property(torch_windows TARGET fulldeck_collectives PROPERTY FULLDECK_WINDOWS)
  list(PREPEND torch_windows ${torch_window})

  file(GLOB torch_sources CONFIGURE_DEPENDS src/torch_runtime/*.cc)
  file(GLOB torch_tests CONFIGURE_DEPENDS src/torch_runtime/*_test.cc)
  list(REMOVE_ITEM torch_sources ${torch_tests})

  # Once compiled, twice used: in the library, and in the tests, which look inside.
  add_library(fulldeck_torch_objects OBJECT ${torch_sources})
  target_include_directories(fulldeck_torch_objects PRIVATE ${torch_windows} ${PROJECT_SOURCE_DIR}/include
                                                            ${PROJECT_SOURCE_DIR}/src/torch_runtime/gloo_declarations)
  target_link_libraries(fulldeck_torch_objects PRIVATE torch_of_python fulldeck_compile_options)
  target_precompile_headers(fulldeck_torch_objects PRIVATE <torch/csrc/distributed/c10d/Backend.hpp>)

  add_library(fulldeck_torch SHARED $<TARGET_OBJECTS:fulldeck_torch_objects>)
  target_include_directories(fulldeck_torch INTERFACE ${torch_window})
  target_link_libraries(fulldeck_torch PUBLIC torch_of_python
                                       PRIVATE fulldeck_collectives fulldeck_wire fulldeck_base fulldeck_compile_options)
  target_link_options(fulldeck_torch PRIVATE -Wl,--exclude-libs,ALL)
  # Whoever loads it has torch loaded already, and where that lies is not ours to say.
  set_target_properties(fulldeck_torch PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "")

  if(BUILD_TESTING AND torch_tests)
    add_executable(torch_runtime_test ${torch_tests} $<TARGET_OBJECTS:fulldeck_torch_objects>)
    target_include_directories(torch_runtime_test PRIVATE ${torch_windows} ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(torch_runtime_test PRIVATE torch_of_python fulldeck_collectives fulldeck_wire fulldeck_base
                                                     fulldeck_compile_options GTest::gmock GTest::gtest_main)
    target_precompile_headers(torch_runtime_test PRIVATE <torch/csrc/distributed/c10d/Backend.hpp> <gmock/gmock.h> <gtest/gtest.h>)
    target_compile_options(torch_runtime_test PRIVATE -O0)
    set_target_properties(torch_runtime_test PROPERTIES ENABLE_EXPORTS ON RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
                                                        BUILD_RPATH ${FULLDECK_TORCH_LIBRARIES})
    gtest_discover_tests(torch_runtime_test DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 600)
  endif()
endif()
