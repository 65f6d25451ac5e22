# One static library a folder of src/, fl_<folder>. The links below are the directions of
# docs/architecture.md; tests/layers_test.py holds the includes to them.

# Sources below `folder` that are part of a library: no tests, benchmarks or fuzz targets.
function(fl_library_sources out folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cc)
  list(FILTER files EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  list(SORT files)
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# fl_add_library(<folder> <links...>)
function(fl_add_library folder)
  fl_library_sources(sources ${folder})
  # Not part of the library: the Python module and the program's main function.
  list(FILTER sources EXCLUDE REGEX "/src/(python/extension|cli/main)\\.cc$")
  fl_set_isa_flags(${sources})
  add_library(fl_${folder} STATIC ${sources})
  target_include_directories(fl_${folder} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(fl_${folder} PUBLIC ${ARGN})
endfunction()

fl_add_library(base Threads::Threads nlohmann_json::nlohmann_json)
fl_add_library(device fl_base)
fl_add_library(graph fl_ops fl_base nlohmann_json::nlohmann_json)
fl_add_library(checkpoint fl_base nlohmann_json::nlohmann_json PkgConfig::xxhash)
fl_add_library(cache fl_ops fl_base)
fl_add_library(text fl_base nlohmann_json::nlohmann_json PkgConfig::pcre2 PkgConfig::utf8proc)
if(NOT FL_FUZZ)
  fl_add_library(engine fl_cache fl_checkpoint fl_graph fl_text fl_op_kernels fl_device fl_base PkgConfig::xxhash)
  fl_add_library(python fl_graph fl_checkpoint fl_text fl_ops fl_base pybind11::pybind11)
  fl_add_library(cli fl_engine fl_python fl_text fl_checkpoint fl_graph fl_cache fl_op_kernels fl_device fl_base
                 CLI11::CLI11 PkgConfig::libedit)
  # pybind11's own types are hidden; what holds them must be too.
  set_target_properties(fl_python PROPERTIES CXX_VISIBILITY_PRESET hidden)
  target_compile_definitions(fl_python PRIVATE FL_PYTHON="${FL_PYTHON}" FL_MODELS_DIR="${CMAKE_SOURCE_DIR}/models")
  target_compile_definitions(fl_cli PRIVATE FL_VERSION="${PROJECT_VERSION}" FL_BUILD_FLAGS="${FL_BUILD_FLAGS}"
                                            FL_MODELS_DIR="${CMAKE_SOURCE_DIR}/models")
endif()
