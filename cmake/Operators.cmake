# Operators: one folder each under src/ops, folder name = operator name.
#   op.cc         the contract                                     -> fl_ops
#   cpu.cc, *.cc  the CPU kernel                                   -> fl_op_kernels
#   kernels.inc   inner loops, compiled once per instruction set   -> fl_op_kernels
# The tables behind ops/registry.h and ops/kernels.h are written here from the folders found, so that nothing
# registers itself through static initialisers (which a linker drops from static libraries).

set(gen ${CMAKE_BINARY_DIR}/gen/ops)

# Writes only on change, so that a new configure run does not rebuild everything.
function(fl_write file text)
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
endfunction()

file(GLOB contract_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/*.cc)
list(FILTER contract_sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
file(GLOB op_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/*/*.cc)
file(GLOB op_inner_loops CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/*/kernels.inc)
file(GLOB op_folders LIST_DIRECTORIES true RELATIVE ${CMAKE_SOURCE_DIR}/src/ops ${CMAKE_SOURCE_DIR}/src/ops/*)
list(SORT op_folders)

set(kernel_sources "")
set(contract_includes "")
set(contract_entries "")
set(kernel_includes "")
set(kernel_entries "")
set(fl_ops_found "")
foreach(op IN LISTS op_folders)
  set(folder ${CMAKE_SOURCE_DIR}/src/ops/${op})
  if(NOT IS_DIRECTORY ${folder})
    continue()
  endif()
  if(NOT EXISTS ${folder}/op.cc)
    message(WARNING "src/ops/${op} has no op.cc: left out")
    continue()
  endif()
  list(APPEND fl_ops_found ${op})
  list(APPEND contract_sources ${folder}/op.cc)
  string(APPEND contract_includes "#include \"ops/${op}/op.h\"\n")
  string(APPEND contract_entries "      &${op}_contract(),\n")

  if(FL_FUZZ)
    continue()  # contracts are enough to parse
  endif()
  if(NOT EXISTS ${folder}/cpu.cc)
    message(WARNING "src/ops/${op} has no cpu.cc: contract only")
    continue()
  endif()
  string(APPEND kernel_includes "#include \"ops/${op}/op.h\"\n")
  string(APPEND kernel_entries "    {\"${op}\", &make_${op}_cpu},\n")
  set(sources ${op_sources})
  list(FILTER sources INCLUDE REGEX "/src/ops/${op}/")
  list(FILTER sources EXCLUDE REGEX "/op\\.cc$|_(test|bench|fuzz)\\.cc$")
  list(APPEND kernel_sources ${sources})
  if(EXISTS ${folder}/kernels.inc)
    foreach(isa IN LISTS FL_ISAS)
      set(file ${gen}/${op}/kernels_${isa}.cc)
      fl_write(${file}
               "#include \"device/cpu/simd_${isa}.h\"\n\n#include \"ops/${op}/kernels.inc\"\n")
      list(APPEND kernel_sources ${file})
    endforeach()
  endif()
endforeach()

fl_write(${gen}/registry.cc "// Written by cmake/Operators.cmake from the folders of src/ops.
#include \"ops/registry.h\"

#include <array>
#include <string>

${contract_includes}
namespace firstlight {

std::span<const OpContract* const> all_contracts() {
  static const std::array contracts{
${contract_entries}  };
  return contracts;
}

Result<const OpContract*> find_contract(std::string_view name) {
  std::string known;
  for (const OpContract* contract : all_contracts()) {
    if (contract->name == name) return contract;
    known += (known.empty() ? \"\" : \", \") + std::string(contract->name);
  }
  return Error{\"there is no operator `\" + std::string(name) + \"`; the known ones are \" + known};
}

}  // namespace firstlight
")

fl_write(${gen}/kernels.cc "// Written by cmake/Operators.cmake from the folders of src/ops.
#include \"ops/kernels.h\"

#include <string>
#include <utility>

${kernel_includes}
namespace firstlight {

Result<MakeKernel> cpu_kernel(std::string_view op) {
  static constexpr std::pair<std::string_view, MakeKernel> kKernels[] = {
${kernel_entries}  };
  std::string known;
  for (const auto& [name, make] : kKernels) {
    if (name == op) return make;
    known += (known.empty() ? \"\" : \", \") + std::string(name);
  }
  return Error{\"there is no CPU kernel for operator `\" + std::string(op) + \"`; there are \" + known};
}

}  // namespace firstlight
")

fl_set_isa_flags(${kernel_sources})
add_library(fl_ops STATIC ${contract_sources} ${gen}/registry.cc)
target_include_directories(fl_ops PUBLIC ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(fl_ops PUBLIC fl_device fl_base)

if(NOT FL_FUZZ)
  add_library(fl_op_kernels STATIC ${kernel_sources} ${gen}/kernels.cc)
  target_link_libraries(fl_op_kernels PUBLIC fl_ops fl_device fl_base)
endif()
