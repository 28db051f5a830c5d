# The vision job, where there is a torch (find_torch.cmake):
#   fulldeck_dinov3_objects   the model (src/vision/dinov3)
#   fulldeck-train            what `fulldeck train` runs on every card (src/vision/trainer)
#   fulldeck-predict          what `fulldeck predict` runs (src/vision/predict/program)
# and without one what of it needs none: the layer `predict`, and the program by which tests look at reports.
add_layer(vision/predict USES base model_spec config imagery dataset report checkpoint HEADERS_OF fmt json)
# Its headers show what these layers are made of.
target_link_libraries(fulldeck_predict PUBLIC fulldeck_dataset fulldeck_imagery)
if(BUILD_TESTING)
  # What tests/vision/test_report.py reads back with other people's programs.
  get_property(report_windows TARGET fulldeck_report PROPERTY FULLDECK_WINDOWS)
  add_executable(report_tool tests/programs/report_tool.cc)
  target_include_directories(report_tool PRIVATE ${report_windows})
  target_link_libraries(report_tool PRIVATE fulldeck_report fulldeck_base headers_of_fmt fulldeck_compile_options)
  set_target_properties(report_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()

if(NOT FULLDECK_HAS_TORCH)
  return()
endif()

set(dinov3_libraries fulldeck_runtime fulldeck_model_spec fulldeck_base)
add_torch_layer(vision/dinov3 USES model_spec base LIBRARIES ${dinov3_libraries})
set(trainer_libraries fulldeck_runtime fulldeck_dataset fulldeck_imagery fulldeck_report fulldeck_config fulldeck_model_spec fulldeck_base)
add_torch_layer(vision/trainer USES dinov3 report dataset base model_spec config imagery
                LIBRARIES ${trainer_libraries} WITH $<TARGET_OBJECTS:fulldeck_dinov3_objects>)

# add_torch_program(NAME SOURCES file... WINDOWS folder... LIBRARIES library... [OBJECTS object...] [FOLDER folder])
function(add_torch_program name)
  cmake_parse_arguments(PARSE_ARGV 1 PROGRAM "" "FOLDER" "SOURCES;WINDOWS;LIBRARIES;OBJECTS")
  add_executable(${name} ${PROGRAM_SOURCES} ${PROGRAM_OBJECTS} $<TARGET_OBJECTS:fulldeck_dinov3_objects>)
  target_include_directories(${name} PRIVATE ${PROGRAM_WINDOWS} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE torch_of_python ${PROGRAM_LIBRARIES} fulldeck_compile_options)
  use_torch_headers(${name})
  set_target_properties(${name} PROPERTIES BUILD_RPATH ${FULLDECK_TORCH_LIBRARIES}
                                           INSTALL_RPATH "$ORIGIN/../lib;${FULLDECK_TORCH_LIBRARIES}")
  if(PROGRAM_FOLDER)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROGRAM_FOLDER})
  endif()
endfunction()

get_property(trainer_windows TARGET fulldeck_trainer_objects PROPERTY FULLDECK_WINDOWS)
add_torch_program(fulldeck-train SOURCES src/vision/trainer/main.cc OBJECTS $<TARGET_OBJECTS:fulldeck_trainer_objects>
                  WINDOWS ${trainer_windows} LIBRARIES ${trainer_libraries})

set(predict_libraries fulldeck_runtime fulldeck_predict fulldeck_dataset fulldeck_imagery fulldeck_report fulldeck_config fulldeck_model_spec fulldeck_checkpoint
                      fulldeck_base)
get_property(predict_windows TARGET fulldeck_predict PROPERTY FULLDECK_WINDOWS)
list(APPEND predict_windows ${CMAKE_BINARY_DIR}/layers/dinov3)
file(GLOB predict_sources CONFIGURE_DEPENDS src/vision/predict/program/*.cc)
add_torch_program(fulldeck-predict SOURCES ${predict_sources} WINDOWS ${predict_windows} LIBRARIES ${predict_libraries})

if(BUILD_TESTING)
  target_compile_definitions(dinov3_test PRIVATE FULLDECK_BUILD_DIR="${CMAKE_BINARY_DIR}")
  add_dependencies(dinov3_test fulldeck_sim)
  # Makes the models that tests/vision/test_predict.py predicts with.
  add_torch_program(predict_model SOURCES tests/programs/predict_model.cc WINDOWS ${predict_windows} LIBRARIES ${predict_libraries}
                    FOLDER ${CMAKE_BINARY_DIR}/tests)
  # The backbone as a program, for tests/vision/test_dinov3_parity.py.
  get_property(dinov3_windows TARGET fulldeck_dinov3_objects PROPERTY FULLDECK_WINDOWS)
  add_torch_program(dinov3_parity SOURCES tests/programs/dinov3_parity.cc WINDOWS ${dinov3_windows} LIBRARIES ${dinov3_libraries}
                    FOLDER ${CMAKE_BINARY_DIR}/tests)
endif()
