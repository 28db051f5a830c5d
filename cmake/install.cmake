# cmake --install: the program, the libraries, the public headers, and a package that other projects find:
#   find_package(fulldeck CONFIG REQUIRED COMPONENTS collectives runtime)
#   fulldeck::collectives  fulldeck::board  fulldeck::simulated_card    C interfaces, no torch
#   fulldeck::runtime                                                   the C++ runtime, for the torch that it was built with
# The folders keep their names (bin, lib), because the program looks for its libraries beside itself. docs/install.md is for
# users.
include(CMakePackageConfigHelpers)
set(package_folder lib/cmake/fulldeck)

install(TARGETS fulldeck RUNTIME DESTINATION bin)
install(TARGETS fulldeck_preload LIBRARY DESTINATION lib)
install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/fulldeck_hook ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/python DESTINATION lib
        PATTERN __pycache__ EXCLUDE)
install(FILES include/fulldeck/collectives.h include/fulldeck/rank_board.h include/fulldeck/simulated_card.h
        DESTINATION include/fulldeck)

set_target_properties(fulldeck_collectives_library PROPERTIES EXPORT_NAME collectives)
set_target_properties(fulldeck_board PROPERTIES EXPORT_NAME board)
set_target_properties(fulldeck_simulated_card PROPERTIES EXPORT_NAME simulated_card)
install(TARGETS fulldeck_collectives_library fulldeck_board fulldeck_simulated_card EXPORT fulldeck_collectives
        LIBRARY DESTINATION lib INCLUDES DESTINATION include)
install(EXPORT fulldeck_collectives NAMESPACE fulldeck:: DESTINATION ${package_folder} FILE collectives.cmake)

if(FULLDECK_HAS_TORCH)
  file(GLOB public_headers CONFIGURE_DEPENDS include/fulldeck/*.h)
  install(FILES ${public_headers} DESTINATION include/fulldeck)
  # Not exported: its target would carry the paths of this torch. The package makes fulldeck::runtime itself, for the torch
  # that it finds.
  install(TARGETS fulldeck_runtime fulldeck_torch fulldeck_sim LIBRARY DESTINATION lib)
  install(TARGETS fulldeck-train fulldeck-predict RUNTIME DESTINATION bin)
  install(DIRECTORY configs DESTINATION share/fulldeck)
  if(TARGET fulldeck_nccl)
    install(TARGETS fulldeck_nccl LIBRARY DESTINATION lib)
  endif()
endif()

configure_package_config_file(cmake/fulldeckConfig.cmake.in ${CMAKE_BINARY_DIR}/package/fulldeckConfig.cmake
                              INSTALL_DESTINATION ${package_folder} NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/fulldeckConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/fulldeckConfig.cmake ${CMAKE_BINARY_DIR}/package/fulldeckConfigVersion.cmake
        python/build_backend/torch_facts.py DESTINATION ${package_folder})
