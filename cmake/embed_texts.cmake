# embed_texts(LAYER FOLDER): compiles the files FOLDER/*.toml into a layer. Its sources then include
# "LAYER/embedded_texts.h", which declares fulldeck::LAYER::EmbeddedTexts(); the layer must use the layer texts.
#
# The source is made by this file as a script (cmake -P), when one of the files has changed.
if(CMAKE_SCRIPT_MODE_FILE)
  set(entries)
  foreach(file IN LISTS FILES)
    file(READ ${TOP}/${file} text)
    string(LENGTH "${text}" length)
    # Compilers need not take longer literals.
    if(length GREATER 65000)
      message(FATAL_ERROR "${file} has ${length} bytes, and 65000 are the most that can be embedded: split it.")
    endif()
    if("${text}" MATCHES "\\)toml\"")
      message(FATAL_ERROR "${file} holds )toml\", which would end the literal that it is embedded in.")
    endif()
    string(APPEND entries "      {\"${file}\", R\"toml(${text})toml\"},\n")
  endforeach()
  set(source "// Made by cmake/embed_texts.cmake.\n#include \"${LAYER}/embedded_texts.h\"\n\nnamespace fulldeck::${LAYER} {\n\n")
  string(APPEND source "std::span<const texts::EmbeddedFile> EmbeddedTexts() {\n  static constexpr texts::EmbeddedFile kFiles[] = {\n"
                       "${entries}  };\n  return kFiles;\n}\n\n}  // namespace fulldeck::${LAYER}\n")
  file(WRITE ${OUTPUT} "${source}")
  return()
endif()

set(EMBED_TEXTS_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(embed_texts layer folder)
  file(GLOB files RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.toml)
  if(NOT files)
    message(FATAL_ERROR "embed_texts(${layer}): there is no ${folder}/*.toml.")
  endif()
  list(TRANSFORM files PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  set(place ${CMAKE_BINARY_DIR}/generated/${layer})
  file(CONFIGURE OUTPUT ${place}/embedded_texts.h @ONLY CONTENT [=[
// The files @folder@/*.toml. Made by cmake/embed_texts.cmake.
#pragma once

#include <span>

#include "texts/embedded_file.h"

namespace fulldeck::@layer@ {

std::span<const texts::EmbeddedFile> EmbeddedTexts();

}  // namespace fulldeck::@layer@
]=])
  add_custom_command(
    OUTPUT ${place}/embedded_texts.cc
    COMMAND ${CMAKE_COMMAND} -DLAYER=${layer} -DTOP=${PROJECT_SOURCE_DIR} "-DFILES=${files}" -DOUTPUT=${place}/embedded_texts.cc
            -P ${EMBED_TEXTS_SCRIPT}
    DEPENDS ${paths} ${EMBED_TEXTS_SCRIPT}
    COMMENT "Embedding ${folder}"
    VERBATIM)
  target_sources(fulldeck_${layer} PRIVATE ${place}/embedded_texts.cc)
  target_include_directories(fulldeck_${layer} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endfunction()
