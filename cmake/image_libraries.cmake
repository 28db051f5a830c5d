# The libraries that read image files, as one INTERFACE library `image_libraries`: libpng must be there; without libturbojpeg
# or libtiff such files are refused at run time; with libdeflate PNG files are read faster. The build says what is missing.
add_library(image_libraries INTERFACE)
find_package(PNG REQUIRED)
target_link_libraries(image_libraries INTERFACE PNG::PNG)
find_package(TIFF QUIET)
if(TIFF_FOUND)
  target_link_libraries(image_libraries INTERFACE TIFF::TIFF)
  target_compile_definitions(image_libraries INTERFACE FULLDECK_HAS_TIFF)
else()
  message(STATUS "No libtiff: the trainer of this build reads no TIFF files.")
endif()

# add_image_library(NAME HEADER LIBRARY DEFINITION WITHOUT): without it the build says what it cannot do.
function(add_image_library name header library definition without)
  find_path(FULLDECK_${name}_DIR ${header})
  find_library(FULLDECK_${name} ${library})
  if(FULLDECK_${name}_DIR AND FULLDECK_${name})
    target_include_directories(image_libraries SYSTEM INTERFACE ${FULLDECK_${name}_DIR})
    target_link_libraries(image_libraries INTERFACE ${FULLDECK_${name}})
    target_compile_definitions(image_libraries INTERFACE ${definition})
  else()
    message(STATUS "No lib${library}: the trainer of this build ${without}.")
  endif()
endfunction()
add_image_library(TURBOJPEG turbojpeg.h turbojpeg FULLDECK_HAS_JPEG "reads no JPEG files")
add_image_library(LIBDEFLATE libdeflate.h deflate FULLDECK_HAS_DEFLATE "reads PNG files at libpng's speed")

# Loops over pixels: as vectors, and with the same results on every processor.
set_source_files_properties(src/vision/imagery/kernels.cc PROPERTIES COMPILE_OPTIONS
                            "-O3;-fno-trapping-math;-fno-math-errno;-ffp-contract=off")
