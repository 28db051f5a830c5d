# The simulated cards inside torch (src/rank/simulator): lib/libfulldeck_sim.so, loaded as a vendor's library would be. It shows
# the C functions of include/fulldeck/simulator.h and nothing else.
if(FULLDECK_HAS_TORCH)
  layer_windows(rank/simulator simulator_windows wire base)
  layer_sources(rank/simulator simulator_sources simulator_tests)

  add_library(fulldeck_sim SHARED ${simulator_sources})
  target_include_directories(fulldeck_sim PRIVATE ${simulator_windows} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(fulldeck_sim PRIVATE torch_of_python fulldeck_simulated_card fulldeck_wire fulldeck_base
                                             fulldeck_compile_options)
  target_compile_definitions(fulldeck_sim PRIVATE AT_PER_OPERATOR_HEADERS)
  compile_in_batches(fulldeck_sim)
  # Hundreds of wrappers, which do next to nothing.
  target_compile_options(fulldeck_sim PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  target_link_options(fulldeck_sim PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,nodelete
                      -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exported_symbols.map)
  # Whoever loads it has torch loaded already, and where that lies is not ours to say; the card's library lies beside it.
  set_target_properties(fulldeck_sim PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN"
                                                INSTALL_RPATH_USE_LINK_PATH OFF)

  if(BUILD_TESTING AND simulator_tests)
    # Loads the library as a program does, and links with torch alone.
    add_executable(simulator_test ${simulator_tests})
    target_include_directories(simulator_test PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(simulator_test PRIVATE torch_of_python fulldeck_simulated_card fulldeck_compile_options
                                                 GTest::gmock GTest::gtest_main)
    use_torch_headers(simulator_test)
    target_compile_definitions(simulator_test PRIVATE FULLDECK_SIM_LIBRARY="$<TARGET_FILE:fulldeck_sim>")
    add_dependencies(simulator_test fulldeck_sim)
    set_target_properties(simulator_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
                                                    BUILD_RPATH "${FULLDECK_TORCH_LIBRARIES};${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")
    gtest_discover_tests(simulator_test DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 600)
    add_dependencies(runtime_test fulldeck_sim)
  endif()
endif()
