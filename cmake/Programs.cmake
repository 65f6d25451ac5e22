# The command-line program, the importable Python module and the benchmarks.
add_executable(firstlight src/cli/main.cc)
target_link_libraries(firstlight PRIVATE fl_cli pybind11::embed)
install(TARGETS firstlight RUNTIME DESTINATION bin)
install(DIRECTORY models/ DESTINATION share/firstlight/models FILES_MATCHING PATTERN "*.py")
install(FILES LICENSE NOTICE DESTINATION share/doc/firstlight)

# `import firstlight` with PYTHONPATH=build/<preset>/python. It links the same tracer as the binary but no
# interpreter: the one that imports it is already there.
pybind11_add_module(firstlight_module MODULE NO_EXTRAS src/python/extension.cc)
target_link_libraries(firstlight_module PRIVATE fl_python)
set_target_properties(firstlight_module PROPERTIES
  OUTPUT_NAME firstlight LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python)
install(TARGETS firstlight_module LIBRARY DESTINATION lib/firstlight/python)

# Benchmarks are built on request (`make bench`) and for the tests, so that a plain build stays short.
add_custom_target(benchmarks)
file(GLOB_RECURSE bench_sources CONFIGURE_DEPENDS
     ${CMAKE_SOURCE_DIR}/bench/*_bench.cc ${CMAKE_SOURCE_DIR}/src/*_bench.cc)
foreach(source IN LISTS bench_sources)
  get_filename_component(name ${source} NAME_WE)
  file(STRINGS ${source} wants_library REGEX "benchmark/benchmark\\.h")
  if(wants_library AND NOT TARGET benchmark::benchmark)
    message(WARNING "${name} needs Google Benchmark (libbenchmark-dev): left out")
    continue()
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE fl_engine fl_python pybind11::embed)
  if(wants_library)
    target_link_libraries(${name} PRIVATE benchmark::benchmark)
  endif()
  target_compile_definitions(${name} PRIVATE FL_REPO_ROOT="${CMAKE_SOURCE_DIR}" FL_MODELS_DIR="${CMAKE_SOURCE_DIR}/models"
                             FL_BUILD_FLAGS="${FL_BUILD_FLAGS}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  add_dependencies(benchmarks ${name})
endforeach()
