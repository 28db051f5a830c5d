# The C++ runtime for training programs (src/rank/runtime), where there is a torch (find_torch.cmake):
#   fulldeck_runtime   lib/libfulldeck_runtime.so, which shows what include/fulldeck/*.h declares and nothing else
#   fulldeck_nccl      lib/libfulldeck_nccl.so, where torch has CUDA
if(NOT FULLDECK_HAS_TORCH)
  return()
endif()

set(runtime_libraries fulldeck_torch fulldeck_checkpoint fulldeck_wire fulldeck_base)
add_torch_layer(rank/runtime FOLDERS cards checkpoint data_parallel session
                USES torch_backend collectives base wire checkpoint
                LIBRARIES ${runtime_libraries})
# Shown too: what of the public headers needs no torch, and stands in base so that the data layers have it.
add_library(fulldeck_runtime SHARED $<TARGET_OBJECTS:fulldeck_runtime_objects> src/core/base/random.cc src/core/base/error.cc)
target_include_directories(fulldeck_runtime PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_include_directories(fulldeck_runtime INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(fulldeck_runtime PUBLIC torch_of_python PRIVATE ${runtime_libraries} fulldeck_compile_options)
target_link_options(fulldeck_runtime PRIVATE -Wl,--exclude-libs,ALL)
# Installed, it finds its own libraries beside it, and the torch that it was built with where that was.
set_target_properties(fulldeck_runtime PROPERTIES SOVERSION ${PROJECT_VERSION_MAJOR} VERSION ${PROJECT_VERSION}
                                                  INSTALL_RPATH "$ORIGIN;${FULLDECK_TORCH_LIBRARIES}")

# torch's NCCL backend, loaded when a session wants it (src/rank/runtime/cards/nccl_library.h).
if(FULLDECK_CUDA_INCLUDES AND EXISTS ${FULLDECK_TORCH_LIBRARIES}/libtorch_cuda.so)
  add_library(fulldeck_nccl MODULE src/rank/runtime/nccl/make_nccl.cc)
  get_property(runtime_windows TARGET fulldeck_runtime_objects PROPERTY FULLDECK_WINDOWS)
  target_include_directories(fulldeck_nccl PRIVATE ${runtime_windows})
  target_include_directories(fulldeck_nccl SYSTEM PRIVATE ${FULLDECK_CUDA_INCLUDES})
  target_link_libraries(fulldeck_nccl PRIVATE torch_of_python ${FULLDECK_TORCH_LIBRARIES}/libtorch_cuda.so
                                              ${FULLDECK_TORCH_LIBRARIES}/libc10_cuda.so fulldeck_compile_options)
  set_target_properties(fulldeck_nccl PROPERTIES INSTALL_RPATH "${FULLDECK_TORCH_LIBRARIES}")
endif()

if(BUILD_TESTING)
  # Stands for a vendor's library that a session loads.
  add_library(runtime_test_plugin MODULE src/rank/runtime/cards/plugin_for_test.c)
  set_target_properties(runtime_test_plugin PROPERTIES OUTPUT_NAME plugin_for_test
                                                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(runtime_test runtime_test_plugin)
  target_compile_definitions(runtime_test PRIVATE FULLDECK_BUILD_DIR="${CMAKE_BINARY_DIR}")
endif()
